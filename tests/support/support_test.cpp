// SPDX-License-Identifier: Apache-2.0
// The tools of the tests: a rounding, an ulp or a guard that is wrong would hide errors everywhere.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/half.h"
#include "support/compare.h"
#include "support/random.h"
#include "support/run.h"
#include "support/sanitizer.h"
#include "support/targets.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Compare, UlpOfEveryHalf) {
  for (uint32_t bits = 0; bits + 1 < 0x7C00; ++bits) {
    const double low = static_cast<double>(to_float(float16_t{static_cast<uint16_t>(bits)}));
    const double high = static_cast<double>(to_float(float16_t{static_cast<uint16_t>(bits + 1)}));
    ASSERT_EQ(ulp(low, ACL_FLOAT16), high - low) << bits;
    ASSERT_EQ(ulp(-low, ACL_FLOAT16), high - low) << bits;
  }
}

TEST(Compare, UlpOfEveryBfloat) {
  for (uint32_t bits = 0; bits + 1 < 0x7F80; ++bits) {
    const double low = static_cast<double>(to_float(bfloat16_t{static_cast<uint16_t>(bits)}));
    const double high = static_cast<double>(to_float(bfloat16_t{static_cast<uint16_t>(bits + 1)}));
    ASSERT_EQ(ulp(low, ACL_BF16), high - low) << bits;
  }
}

TEST(Compare, UlpOfSingles) {
  EXPECT_EQ(ulp(0.0, ACL_FLOAT), 0x1p-149);
  EXPECT_EQ(ulp(0x1p-126, ACL_FLOAT), 0x1p-149);
  EXPECT_EQ(ulp(1.0, ACL_FLOAT), 0x1p-23);
  EXPECT_EQ(ulp(std::nextafter(1.0, 0.0), ACL_FLOAT), 0x1p-24);
  EXPECT_EQ(ulp(kInf, ACL_FLOAT), 0x1p104);
  EXPECT_EQ(ulp(1e300, ACL_FLOAT), 0x1p104);
}

TEST(Compare, RoundedAgreesWithTheConversions) {
  Random random(seed_of_test(1));
  for (int i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random.bits()));
    if (std::isnan(value)) continue;
    const auto exact = static_cast<double>(value);
    ASSERT_EQ(rounded(exact, ACL_FLOAT), exact);
    ASSERT_EQ(rounded(exact, ACL_FLOAT16),
              static_cast<double>(to_float(from_float<float16_t>(value))));
    ASSERT_EQ(rounded(exact, ACL_BF16),
              static_cast<double>(to_float(from_float<bfloat16_t>(value))));
    const double wide = exact * (1 + random.uniform());
    ASSERT_EQ(rounded(wide, ACL_FLOAT), static_cast<double>(static_cast<float>(wide)));
  }
}

TEST(Compare, AcceptsTheToleranceAndNoMore) {
  EXPECT_TRUE(is_close(1.0 + 0x1p-24, 1.0, 0.0, ACL_FLOAT, 0));
  EXPECT_FALSE(is_close(1.0 + 0x1p-23, 1.0, 0.0, ACL_FLOAT, 0));
  EXPECT_TRUE(is_close(1.0 + 0x1p-23, 1.0, 0.125, ACL_FLOAT, 0));
  EXPECT_FALSE(is_close(1.0 + 0x1p-20, 1.0, 1.0, ACL_FLOAT, 0));
  EXPECT_TRUE(is_close(3 * 0x1p-149, 0.0, 0.0, ACL_FLOAT, 3));
  EXPECT_FALSE(is_close(4 * 0x1p-149, 0.0, 0.0, ACL_FLOAT, 3));
}

TEST(Compare, InfAndNan) {
  EXPECT_TRUE(is_close(kNan, kNan, 0, ACL_FLOAT, 0));
  EXPECT_FALSE(is_close(kNan, 1.0, 1, ACL_FLOAT, 0));
  EXPECT_FALSE(is_close(kNan, kInf, kInf, ACL_FLOAT, 0));
  EXPECT_FALSE(is_close(1.0, kNan, kNan, ACL_FLOAT, 0));
  EXPECT_FALSE(is_close(kInf, kNan, kNan, ACL_FLOAT, 0));
  EXPECT_TRUE(is_close(kInf, kInf, kInf, ACL_FLOAT, 0));
  EXPECT_FALSE(is_close(-kInf, kInf, kInf, ACL_FLOAT, 0));
  EXPECT_FALSE(is_close(65504, kInf, kInf, ACL_FLOAT16, 0));
  // Overflow by rounding: 65520 is the first number that becomes Inf.
  EXPECT_TRUE(is_close(kInf, 70000, 1, ACL_FLOAT16, 0));
  EXPECT_TRUE(is_close(kInf, 65520, 1, ACL_FLOAT16, 0));
  EXPECT_TRUE(is_close(65504, 65519.9, 1, ACL_FLOAT16, 0));
  EXPECT_FALSE(is_close(kInf, 65504, 1, ACL_FLOAT16, 0));
  EXPECT_FALSE(is_close(65504, 65600, 1, ACL_FLOAT16, 0));
  EXPECT_FALSE(is_close(-kInf, 70000, 1, ACL_FLOAT16, 0));
}

TEST(Tensor, HoldsValuesInEveryArrangement) {
  for (const Arrangement arrangement : kOutputArrangements) {
    for (const aclDataType dtype : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT8,
                                    ACL_INT16, ACL_INT32, ACL_INT64, ACL_UINT8}) {
      for (const Dims& dims : {Dims{}, Dims{1}, Dims{7}, Dims{3, 5}, Dims{2, 3, 4}, Dims{2, 0}}) {
        SCOPED_TRACE(arrangement_name(arrangement));
        Tensor tensor(dims, dtype, arrangement);
        EXPECT_TRUE(tensor.untouched());
        std::vector<double> values(static_cast<size_t>(tensor.numel()));
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i + 1);
        tensor.fill(values);
        EXPECT_EQ(tensor.values(), values);
        EXPECT_TRUE(tensor.untouched_outside());
        EXPECT_EQ(tensor.bits().size(), values.size() * tensor.element_size());
        EXPECT_EQ(tensor.address() == nullptr, values.empty());
        EXPECT_NE(tensor.handle(), nullptr);
        const std::vector<uint8_t> bits = tensor.bits();
        tensor.poison();
        EXPECT_TRUE(tensor.untouched());
        tensor.fill_bits(bits);
        EXPECT_EQ(tensor.values(), values);
      }
    }
  }
}

TEST(Tensor, SeesEveryByteOutsideItsElements) {
  for (const Arrangement arrangement : kOutputArrangements) {
    SCOPED_TRACE(arrangement_name(arrangement));
    Tensor tensor({3, 5}, ACL_FLOAT16, arrangement);
    tensor.fill_constant(1);
    std::set<int64_t> elements;
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t column = 0; column < 5; ++column) {
        elements.insert(tensor.offset() + row * tensor.strides()[0] + column * tensor.strides()[1]);
      }
    }
    EXPECT_EQ(elements.size(), 15u);
    const uint16_t one = from_float<float16_t>(1).bits;
    for (int64_t place = -2; place < 60; ++place) {
      if (place > *elements.rbegin() + 2) break;
      auto* at = static_cast<uint16_t*>(tensor.address()) + place;
      uint16_t before = 0;
      const bool outside = elements.count(place) == 0;
      if (!outside) {
        require(aclrtMemcpy(&before, 2, at, 2, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
        EXPECT_EQ(before, one);
        continue;
      }
      if (under_address_sanitizer()) continue;
      require(aclrtMemcpy(at, 2, &before, 2, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
      EXPECT_FALSE(tensor.untouched_outside()) << place;
      const uint16_t poison = 0xFFFF;
      require(aclrtMemcpy(at, 2, &poison, 2, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
    }
    EXPECT_TRUE(tensor.untouched_outside());
  }
}

TEST(Tensor, ArrangementsAreWhatTheySay) {
  EXPECT_EQ(Tensor({4, 3}, ACL_FLOAT, Arrangement::kTransposed).strides(), (Dims{1, 4}));
  EXPECT_EQ(Tensor({4, 3}, ACL_FLOAT, Arrangement::kRowPadded).strides(), (Dims{8, 1}));
  EXPECT_EQ(Tensor({4, 3}, ACL_FLOAT, Arrangement::kReversed).strides(), (Dims{-3, -1}));
  EXPECT_EQ(Tensor({4, 3}, ACL_FLOAT, Arrangement::kReversed).offset(), 11);
  EXPECT_EQ(Tensor({4, 3}, ACL_FLOAT, Arrangement::kReversedRows).strides(), (Dims{-3, 1}));
  EXPECT_EQ(Tensor({4, 3}, ACL_FLOAT, Arrangement::kInnerStrided).strides(), (Dims{6, 2}));
  EXPECT_EQ(Tensor({4, 3}, ACL_FLOAT, Arrangement::kOffset).offset(), 3);
  EXPECT_EQ(Tensor({4, 3}, ACL_FLOAT, Arrangement::kBroadcast).strides(), (Dims{0, 1}));
  Tensor repeated = Tensor::broadcast({2, 3, 4}, ACL_FLOAT, {1});
  EXPECT_EQ(repeated.strides(), (Dims{4, 0, 1}));
  repeated.fill_normal(1);
  const std::vector<double> values = repeated.values();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(values[i], values[i + 8]);
}

TEST(Workspace, SeesWritesOutside) {
  Workspace workspace(100);
  EXPECT_TRUE(workspace.guards_intact());
  const uint8_t zero = 0;
  auto* bytes = static_cast<uint8_t*>(workspace.get());
  require(aclrtMemcpy(bytes + 99, 1, &zero, 1, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
  EXPECT_TRUE(workspace.guards_intact());
  require(aclrtMemcpy(bytes + 100, 1, &zero, 1, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
  EXPECT_FALSE(workspace.guards_intact());
  EXPECT_EQ(Workspace(0).get(), nullptr);
}

TEST(Targets, AreRunAndRestored) {
  const std::string before = aclgrad_active_target();
  std::vector<std::string> seen;
  for_each_target([&](const std::string& name) {
    EXPECT_EQ(name, aclgrad_active_target());
    seen.push_back(name);
  });
  EXPECT_EQ(seen, targets_to_run());
  EXPECT_EQ(before, aclgrad_active_target());
  const int threads = aclgrad_threads();
  std::vector<int> counts;
  for_each_thread_count([&](int n) {
    EXPECT_EQ(n, aclgrad_threads());
    counts.push_back(n);
  });
  std::vector<int> expected = {1, 2, 3};
  if (under_thread_sanitizer()) expected = {2, 3};
  if (threads > 3) expected.push_back(threads);
  if (aclgrad_has_device_queues()) expected = {threads};
  EXPECT_EQ(counts, expected);
  EXPECT_EQ(threads, aclgrad_threads());
}

TEST(Random, IsTheSameEverywhere) {
  Random random(7);
  EXPECT_EQ(random.bits(), Random(7).bits());
  // Of splitmix64's own description, and computed from it with rational numbers.
  EXPECT_EQ(Random(1234567).bits(), 6457827717110365317u);
  EXPECT_EQ(Random(1234567).normal(), 0x1.fe3ce86p-4);
  double sum = 0;
  double squares = 0;
  for (const double value : normal_values(100000, 3)) {
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 100000, 0, 0.02);
  EXPECT_NEAR(squares / 100000, 1, 0.03);
  std::set<int64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random.integer(-2, 2));
  EXPECT_EQ(seen, (std::set<int64_t>{-2, -1, 0, 1, 2}));
}

// As good as every sum of the terms from first to last is another one than from last to first, in
// FP64 as in FP32, and nothing large is left of it.
TEST(Random, CancellingValuesShowTheOrderOfSums) {
  constexpr size_t kSums = 100;
  constexpr size_t kTerms = 1000;
  const std::vector<double> values =
      cancelling_values(kSums * kTerms, 5, 20, 70, [](size_t i) { return i % kSums; });
  const auto sum_of = [&]<class T>(size_t sum, bool backwards, T total) {
    for (size_t i = 0; i < kTerms; ++i) {
      const size_t term = backwards ? kTerms - 1 - i : i;
      total += static_cast<T>(values[term * kSums + sum]);
    }
    return total;
  };
  const auto as_float = [](double value) { return static_cast<float>(value); };
  size_t same_doubles = 0;
  size_t same_floats = 0;
  for (size_t sum = 0; sum < kSums; ++sum) {
    const double forwards = sum_of(sum, false, 0.0);
    if (as_float(forwards) == as_float(sum_of(sum, true, 0.0))) ++same_doubles;
    if (sum_of(sum, false, 0.0f) == sum_of(sum, true, 0.0f)) ++same_floats;
    EXPECT_LT(std::abs(forwards), std::ldexp(1.0, 30)) << sum;
  }
  EXPECT_LT(same_doubles, kSums / 4);
  EXPECT_LT(same_floats, kSums / 10);
}

}  // namespace
}  // namespace aclgrad::test
