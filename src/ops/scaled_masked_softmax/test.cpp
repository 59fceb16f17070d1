// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmax through the C interface, against the formula in double.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <string>

#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "kernels/cpu/cache.h"
#include "ops/scaled_masked_softmax/cases.h"
#include "ops/scaled_masked_softmax/reference.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/targets.h"
#include "support/tensor.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace aclgrad::test {
namespace {

using scaled_masked_softmax::reference;
using scaled_masked_softmax::Sizes;

// What a problem may choose; the defaults are the plain case.
struct Options {
  aclDataType dtype = ACL_FLOAT;
  double scale = 0.125;
  bool over_batches = true, over_heads = true;  // the mask repeats itself
  Arrangement in = Arrangement::kContiguous;
  Arrangement mask = Arrangement::kContiguous;
  Arrangement out = Arrangement::kContiguous;
};

Options all_of(aclDataType dtype) {
  Options options;
  options.dtype = dtype;
  return options;
}

// The tensors of one problem with random data, and its two phases.
struct Problem {
  Problem(const Dims& dims, const Options& chosen, uint64_t seed = 1)
      : options(chosen),
        mask_dims({chosen.over_batches ? std::min<int64_t>(dims[0], 1) : dims[0],
                   chosen.over_heads ? std::min<int64_t>(dims[1], 1) : dims[1], dims[2], dims[3]}),
        x(dims, chosen.dtype, chosen.in),
        mask(mask_dims, ACL_BOOL, chosen.mask),
        y(dims, chosen.dtype, chosen.out) {
    x.fill_normal(seed, 0.0, 10.0);
    std::vector<double> bytes = integer_values(mask.numel(), seed + 2, -300, 255);
    for (double& byte : bytes) byte = std::max(byte, 0.0);  // any byte but 0 is true
    mask.fill(bytes);
  }

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) {
    return aclnnScaledMaskedSoftmaxGetWorkspaceSize(x.handle(), mask.handle(), options.scale, false,
                                                    y.handle(), size, executor);
  }
  Outcome run_it() {
    return run([&](uint64_t* size, aclOpExecutor** executor) { return plan(size, executor); },
               aclnnScaledMaskedSoftmax);
  }
  std::vector<double> exact() const {
    const auto size = [](const Tensor& t, size_t i) { return static_cast<size_t>(t.dims()[i]); };
    const Sizes sizes{size(y, 0), size(y, 1), size(y, 2), size(y, 3), size(mask, 0), size(mask, 1)};
    return reference(sizes, x.values(), mask.values(), options.scale);
  }
  // Half a unit in the last place, where a whole one is promised. Returns the largest error.
  double expect_right() const {
    const std::vector<double> right = exact();
    return expect_close("y", y, right, right, 2);
  }

  Options options;
  Dims mask_dims;
  Tensor x, mask, y;
};

void run_and_check(const Dims& dims, const Options& options, uint64_t seed = 1) {
  Problem problem(dims, options, seed);
  const Outcome outcome = problem.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  problem.expect_right();
}

constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

TEST(ScaledMaskedSoftmax, DocumentedExample) {
  for (const aclDataType dtype : kFloats) {
    Options options = all_of(dtype);
    options.scale = 1.0;
    Problem problem({1, 1, 4, 4}, options);
    problem.x.fill({0, 0, 0, 0, 5, 5, -3, 7, 1, 2, 3, 4, 9, -9, 9, 100});
    problem.mask.fill({0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1});
    ASSERT_TRUE(problem.run_it().ok());
    EXPECT_EQ(problem.y.values(), (std::vector<double>{0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0, 0, 0.25,
                                                       0.25, 0.25, 0.25, 0, 1, 0, 0}));
  }
}

// Every shape in every dtype: right on the best target, the same bits on all targets and for all
// thread counts.
TEST(ScaledMaskedSoftmax, MatchesReferenceWithTheSameBitsOnEveryTargetAndThreadCount) {
  for (const auto& shape : scaled_masked_softmax::test_shapes()) {
    for (const aclDataType dtype : kFloats) {
      const Dims dims = {shape.batches, shape.heads, shape.rows, shape.cols};
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + "/" + std::to_string(shape.batches) +
                   "x" + std::to_string(shape.heads) + "x" + std::to_string(shape.rows) + "x" +
                   std::to_string(shape.cols));
      Problem problem(dims, all_of(dtype));
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right();
      const std::vector<uint8_t> bits = problem.y.bits();
      for_each_target([&](const std::string& name) {
        problem.y.poison();
        ASSERT_TRUE(problem.run_it().ok());
        expect_same_bits(name, problem.y.bits(), bits);
      });
      for_each_thread_count([&](int threads) {
        problem.y.poison();
        ASSERT_TRUE(problem.run_it().ok());
        expect_same_bits(std::to_string(threads) + " threads", problem.y.bits(), bits);
      });
    }
  }
}

TEST(ScaledMaskedSoftmax, EveryFormOfMask) {
  for (const bool over_batches : {false, true}) {
    for (const bool over_heads : {false, true}) {
      for (const Arrangement mask : kInputArrangements) {
        for (const Dims& dims : {Dims{3, 4, 5, 6}, Dims{2, 3, 7, 33}, Dims{3, 40, 1, 16},
                                 Dims{5, 30, 1, 300}, Dims{2, 9, 30, 160}}) {
          Options options = all_of(kFloats[dims.back() % 3]);
          options.over_batches = over_batches;
          options.over_heads = over_heads;
          options.mask = mask;
          SCOPED_TRACE(std::string("mask ") + arrangement_name(mask) + " " +
                       std::to_string(over_batches) + std::to_string(over_heads) + ", S2 " +
                       std::to_string(dims.back()));
          run_and_check(dims, options);
        }
      }
    }
  }
}

// Rows that lie dense are read in place, whatever the strides before them.
bool rows_are_dense(Arrangement arrangement) {
  return arrangement != Arrangement::kTransposed && arrangement != Arrangement::kReversed &&
         arrangement != Arrangement::kInnerStrided;
}

TEST(ScaledMaskedSoftmax, EveryStridedViewGivesTheSameBits) {
  for (const Dims& dims : {Dims{3, 2, 6, 5}, Dims{2, 3, 5, 16}, Dims{2, 3, 5, 37}}) {
    for (const aclDataType dtype : kFloats) {
      Problem plain(dims, all_of(dtype));
      ASSERT_TRUE(plain.run_it().ok());
      for (const Arrangement in : kInputArrangements) {
        for (const Arrangement out : kOutputArrangements) {
          SCOPED_TRACE(std::string(arrangement_name(in)) + " to " + arrangement_name(out));
          Options options = all_of(dtype);
          options.in = in;
          options.out = out;
          Problem view(dims, options);
          const Outcome outcome = view.run_it();
          ASSERT_TRUE(outcome.ok()) << outcome;
          view.expect_right();
          EXPECT_EQ(outcome.workspace_size == 0, rows_are_dense(in) && rows_are_dense(out));
          if (in != Arrangement::kBroadcast) {
            expect_same_bits("view", view.y.bits(), plain.y.bits());
          }
        }
      }
    }
  }
}

// Rows of `cols` elements in plain memory: a Tensor's guards would take seconds at this size.
struct Rows {
  Rows(int64_t count, int64_t length, aclDataType type, int64_t skipped, uint64_t seed)
      : cols(length),
        dtype(type),
        lead(skipped),
        elements(static_cast<size_t>(count * length + 2 * skipped)),
        memory(bytes()) {
    Tensor pattern({65521}, type);
    type == ACL_BOOL ? pattern.fill_integers(seed, 0, 1) : pattern.fill_normal(seed);
    content = pattern.bits();
    while (content.size() < bytes()) {
      const size_t more = std::min(content.size(), bytes() - content.size());
      content.resize(content.size() + more);
      std::memcpy(&content[content.size() - more], content.data(), more);
    }
    content.resize(bytes());
    require(aclrtMemcpy(memory.get(), bytes(), content.data(), bytes(), ACL_MEMCPY_HOST_TO_DEVICE),
            "aclrtMemcpy");
  }
  size_t bytes() const { return elements * dtype_size(dtype); }
  // [1, 1, count, cols] from row `first` on.
  aclTensor* slice(int64_t first, int64_t count) const {
    const int64_t dims[] = {1, 1, count, cols};
    const int64_t strides[] = {count * cols, count * cols, cols, 1};
    return aclCreateTensor(dims, 4, dtype, strides, lead + first * cols, ACL_FORMAT_ND, nullptr, 0,
                           memory.get());
  }
  std::vector<uint8_t> now() const {
    std::vector<uint8_t> out(bytes());
    require(aclrtMemcpy(out.data(), bytes(), memory.get(), bytes(), ACL_MEMCPY_DEVICE_TO_HOST),
            "aclrtMemcpy");
    return out;
  }

  int64_t cols;
  aclDataType dtype;
  int64_t lead;  // elements before and behind
  size_t elements;
  DeviceMemory memory;
  std::vector<uint8_t> content;  // at first
};

Outcome run_slice(const Rows& x, const Rows& mask, const Rows& y, int64_t first, int64_t count) {
  aclTensor* tensors[] = {x.slice(first, count), mask.slice(first, count), y.slice(0, count)};
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnScaledMaskedSoftmaxGetWorkspaceSize(tensors[0], tensors[1], 3.7, false,
                                                        tensors[2], size, executor);
      },
      aclnnScaledMaskedSoftmax);
  for (aclTensor* tensor : tensors) static_cast<void>(aclDestroyTensor(tensor));
  return outcome;
}

// Outputs that do not fit the cache are written past it, in whole lines: the same bits as from a
// few rows at a time, and nothing else is touched.
TEST(ScaledMaskedSoftmax, AnOutputLargerThanTheCacheHasTheBitsOfItsRows) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const Dims widths = {23, 1001};  // the others would take minutes
#else
  const Dims widths = {23, 96, 1001, 4096};
#endif
  for (const int64_t cols : widths) {
    for (const aclDataType dtype : kFloats) {
      const auto row_bytes = static_cast<int64_t>(dtype_size(dtype)) * cols;
      int64_t count = 100;
      while (!outputs_should_stream(count * row_bytes) && count * row_bytes < (64 << 20)) ++count;
      for (const int64_t lead : {0, 3}) {
        if (lead == 0 && cols % 32 != 0) continue;  // lines at both ends of rows, or not
        SCOPED_TRACE(std::string(dtype_short_name(dtype)) + ", S2 " + std::to_string(cols) +
                     ", offset " + std::to_string(lead));
        const Rows x(count, cols, dtype, 0, 1), mask(count, cols, ACL_BOOL, 0, 3);
        const Rows y(count, cols, dtype, lead, 4);
        const Outcome outcome = run_slice(x, mask, y, 0, count);
        ASSERT_TRUE(outcome.ok()) << outcome;
        const std::vector<uint8_t> bits = y.now();
        const auto guard = static_cast<std::ptrdiff_t>(y.lead * row_bytes / cols);
        EXPECT_TRUE(std::equal(bits.begin(), bits.begin() + guard, y.content.begin()));
        EXPECT_TRUE(std::equal(bits.end() - guard, bits.end(), y.content.end() - guard));
        const Rows few(50, cols, dtype, 0, 5);
        for (const int64_t first : {int64_t{0}, count / 2 + 1, count - 50}) {
          ASSERT_TRUE(run_slice(x, mask, few, first, 50).ok());
          const auto at = bits.begin() + guard + first * row_bytes;
          expect_same_bits("rows", std::vector<uint8_t>(at, at + 50 * row_bytes), few.now());
        }
        if (cols != 23 || lead == 0) continue;
        for_each_target([&](const std::string& name) {
          ASSERT_TRUE(run_slice(x, mask, y, 0, count).ok());
          EXPECT_EQ(std::memcmp(y.now().data(), bits.data(), bits.size()), 0) << name;
        });
      }
    }
  }
}

TEST(ScaledMaskedSoftmax, EmptyTensors) {
  for (size_t empty = 0; empty < 4; ++empty) {
    for (const bool repeats : {false, true}) {
      Dims dims = {2, 3, 4, 5};
      dims[empty] = 0;
      Options options;
      options.over_batches = options.over_heads = repeats;
      Problem problem(dims, options);
      const Outcome outcome = problem.run_it();
      EXPECT_TRUE(outcome.ok()) << outcome;
    }
  }
  Tensor nothing({0, 3, 4, 5}, ACL_FLOAT), one_batch({1, 3, 4, 5}, ACL_BOOL);
  one_batch.fill_constant(0);
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnScaledMaskedSoftmaxGetWorkspaceSize(nothing.handle(), one_batch.handle(), 1.0,
                                                        false, nothing.handle(), size, executor);
      },
      aclnnScaledMaskedSoftmax);
  EXPECT_TRUE(outcome.ok()) << outcome;
}

// Everywhere in rows of every kind: a NaN, an Inf, a -Inf, masked or not, in place of one element
// or of all.
TEST(ScaledMaskedSoftmax, NanAndInfFlowAsTheFormulaHasThem) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t cols : {1, 3, 16, 33, 150}) {
    for (const double special : {inf, -inf, nan}) {
      for (const double scale : {0.125, -3.0, 0.0, nan, inf}) {
        for (const aclDataType dtype : kFloats) {
          for (const bool masked : {true, false}) {
            Options options = all_of(dtype);
            options.scale = scale;
            Problem problem({1, 2, 4, cols}, options);
            std::vector<double> values = problem.x.values(), mask = problem.mask.values();
            const auto row = static_cast<size_t>(cols);
            values[row + row / 2] = special;
            mask[row + row / 2] = masked;
            std::fill_n(values.begin() + 2 * cols, cols, special);
            std::fill_n(values.begin() + 3 * cols, cols, special);
            std::fill_n(mask.begin() + 3 * cols, cols, 0.0);
            problem.x.fill(values);
            problem.mask.fill(mask);
            SCOPED_TRACE(std::to_string(special) + " times " + std::to_string(scale) + ", S2 " +
                         std::to_string(cols));
            for_each_target([&](const std::string&) {
              ASSERT_TRUE(problem.run_it().ok());
              problem.expect_right();
            });
          }
        }
      }
    }
  }
}

// FP32 NaNs of every kind of bits come out as the canonical one, on every target.
TEST(ScaledMaskedSoftmax, NansWithAnyBitsMakeTheirRowsCanonical) {
  for (const uint32_t bits : {0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0xFFC12345u, 0x7FA00055u}) {
    Problem problem({1, 1, 2, 40}, Options());
    problem.mask.fill_constant(0);
    std::vector<uint8_t> bytes = problem.x.bits();
    std::memcpy(&bytes[4 * 57], &bits, 4);
    problem.x.fill_bits(bytes);
    for_each_target([&](const std::string&) {
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right();
    });
  }
}

TEST(ScaledMaskedSoftmax, FullyMaskedRowsAreUniformWhateverStandsInThem) {
  for (const int64_t cols : {1, 3, 31, 32, 100, 4096}) {
    for (const double filler : {1.0, std::numeric_limits<double>::quiet_NaN(), -1e4, 6e4}) {
      for (const aclDataType dtype : kFloats) {
        Problem problem({1, 2, 3, cols}, all_of(dtype));
        problem.x.fill_constant(filler);
        problem.mask.fill_constant(128);
        ASSERT_TRUE(problem.run_it().ok());
        const std::vector<double> y = problem.y.values();
        EXPECT_EQ(y,
                  std::vector<double>(y.size(), rounded(1.0 / static_cast<double>(cols), dtype)));
      }
    }
  }
}

// Rows between -10000 and the masked elements, rows of huge numbers whose differences are small,
// subnormal ones, under scales that FP32 holds badly or not at all.
TEST(ScaledMaskedSoftmax, EveryMagnitudeOfDataAndScaleHoldsTheTolerance) {
  for (const double scale : {1.0, -1.5, 0.08838834764831845, 1000.0 / 3, -1e9, 1e39, 1e-3, 1e-42,
                             -1e-60, 1e-320, 0.0, -0.0}) {
    for (const double reach : {1.0, 1e-39, 20.0, 1e3, 1e20, 1e36}) {
      for (const double middle : {0.0, -10000.0, 30000.0, 2e5, -1e7, 1e30}) {
        for (const int64_t cols : {5, 72}) {
          for (const aclDataType dtype : kFloats) {
            const double unit = std::abs(scale) > 1e-30 ? 1 / scale : 1.0;
            const double largest = std::max(std::abs(reach * unit), std::abs(middle * unit));
            if (largest > (dtype == ACL_FLOAT16 ? 10000.0 : 1e37)) continue;
            SCOPED_TRACE(std::to_string(scale) + " * " + std::to_string(middle * unit) + " +- " +
                         std::to_string(reach * unit));
            Options options = all_of(dtype);
            options.scale = scale;
            Problem problem({1, 1, 3, cols}, options);
            problem.x.fill_normal(3, middle * unit, reach * unit);
            ASSERT_TRUE(problem.run_it().ok());
            problem.expect_right();
          }
        }
      }
    }
  }
}

// Elements as far below the largest as FP32 goes: y is subnormal there, rounded once.
TEST(ScaledMaskedSoftmax, SubnormalResultsAreRoundedOnce) {
  for (const aclDataType dtype : kFloats) {
    Problem problem({1, 1, 1, 2100}, all_of(dtype));
    problem.mask.fill_constant(0);
    std::vector<double> values;
    for (int i = 0; i < 2100; ++i) values.push_back(i == 7 ? 3.0 : 3.0 - i * 0.4);
    problem.x.fill(values);
    ASSERT_TRUE(problem.run_it().ok());
    problem.expect_right();
    const std::vector<double> y = problem.y.values();
    const double least = ulp(0.0, dtype);
    EXPECT_GT(std::count_if(y.begin(), y.end(), [&](double v) { return v > 0 && v < 64 * least; }),
              0);
  }
}

TEST(ScaledMaskedSoftmax, AMillionRowsAndConstantRowsHoldTheTolerance) {
  run_and_check({1, 1, 1000000, 3}, Options());
  for (const int64_t cols : {16, 77, 1024, 4096}) {
    for (const aclDataType dtype : kFloats) {
      Problem constant({1, 1, 2, cols}, all_of(dtype));
      constant.mask.fill_constant(0);
      constant.x.fill_constant(0.1);
      ASSERT_TRUE(constant.run_it().ok());
      const std::vector<double> y = constant.y.values();
      EXPECT_EQ(y, std::vector<double>(y.size(), rounded(1.0 / static_cast<double>(cols), dtype)));
      // One large element and many equal ones: the sum is a chain of equal terms.
      constant.x.fill_constant(-7.3);
      std::vector<double> values = constant.x.values();
      values[5] = 40.0;
      constant.x.fill(values);
      ASSERT_TRUE(constant.run_it().ok());
      constant.expect_right();
    }
  }
}

TEST(ScaledMaskedSoftmax, TheCallersFloatingPointEnvironmentHasNoInfluence) {
  Options options = all_of(ACL_FLOAT16);
  options.scale = 0.9;
  Problem problem({2, 3, 11, 41}, options);  // some results are subnormal in FP16
  ASSERT_TRUE(problem.run_it().ok());
  const std::vector<uint8_t> bits = problem.y.bits();
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    problem.y.poison();
    std::fesetround(mode);
    const Outcome outcome = problem.run_it();
    EXPECT_EQ(std::fegetround(), mode);
    std::fesetround(FE_TONEAREST);
    ASSERT_TRUE(outcome.ok());
    expect_same_bits("rounding", problem.y.bits(), bits);
  }
#if defined(__SSE__)
  Problem tiny({2, 3, 11, 41}, Options());
  tiny.x.fill_normal(7, 0.0, 300.0);  // subnormal results
  ASSERT_TRUE(tiny.run_it().ok());
  const std::vector<uint8_t> kept = tiny.y.bits();
  tiny.y.poison();
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040u);  // flush to zero, denormals are zero
  const Outcome outcome = tiny.run_it();
  EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u);
  _mm_setcsr(saved);
  ASSERT_TRUE(outcome.ok());
  expect_same_bits("flush to zero", tiny.y.bits(), kept);
#endif
}

// Arguments of phase one, any of which a row of the error table replaces.
struct Call {
  Tensor x{{2, 3, 4, 5}, ACL_FLOAT}, mask{{2, 1, 4, 5}, ACL_BOOL}, y{{2, 3, 4, 5}, ACL_FLOAT};
  const aclTensor *x_at = x.handle(), *mask_at = mask.handle(), *y_at = y.handle();
  bool fixed_triu_mask = false;

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) const {
    return aclnnScaledMaskedSoftmaxGetWorkspaceSize(x_at, mask_at, 1.0, fixed_triu_mask,
                                                    const_cast<aclTensor*>(y_at), size, executor);
  }
  void refused(aclnnStatus status, std::initializer_list<std::string> substrings) const {
    SCOPED_TRACE(*substrings.begin());
    expect_refused([&](uint64_t* size, aclOpExecutor** executor) { return plan(size, executor); },
                   status, substrings);
  }
};
using Parameter = const aclTensor* Call::*;

constexpr aclnnStatus kNull = 161001, kInvalid = 161002;
constexpr const char* kOp = "aclnnScaledMaskedSoftmax: ";
constexpr std::pair<Parameter, const char*> kParameters[] = {
    {&Call::x_at, "x"}, {&Call::mask_at, "mask"}, {&Call::y_at, "y"}};

void refused_with(Parameter parameter, const Tensor& tensor,
                  std::initializer_list<std::string> substrings) {
  Call call;
  call.*parameter = tensor.handle();
  call.refused(kInvalid, substrings);
}

TEST(ScaledMaskedSoftmax, ErrorTableNullAndHandles) {
  for (const auto& [parameter, name] : kParameters) {
    Call call;
    call.*parameter = nullptr;
    call.refused(kNull, {std::string(kOp) + name, "null"});
  }
  Call call;
  uint64_t size = 7;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(call.plan(nullptr, &executor), kNull);
  EXPECT_EQ(executor, nullptr);
  expect_message(take_message(), {kOp, "workspaceSize"});
  EXPECT_EQ(call.plan(&size, nullptr), kNull);
  EXPECT_EQ(size, 7u);
  expect_message(take_message(), {kOp, "executor"});
  const IntArray array({1});
  for (const auto& [parameter, name] : kParameters) {
    Call wrong;
    wrong.*parameter = reinterpret_cast<const aclTensor*>(array.handle());
    wrong.refused(kInvalid, {std::string(kOp) + name, "aclIntArray"});
    Tensor dead({2, 3, 4, 5}, ACL_FLOAT);
    wrong.*parameter = dead.handle();
    dead.destroy_handle();
    wrong.refused(kInvalid, {std::string(kOp) + name, "destroyed"});
  }
}

TEST(ScaledMaskedSoftmax, ErrorTableDtypesFormatsAndRanks) {
  const Dims dims = {2, 3, 4, 5};
  refused_with(&Call::x_at, Tensor(dims, ACL_DOUBLE), {kOp, "x", "DOUBLE", "FLOAT"});
  refused_with(&Call::mask_at, Tensor(dims, ACL_UINT8), {kOp, "mask", "UINT8", "BOOL"});
  refused_with(&Call::y_at, Tensor(dims, ACL_BF16), {kOp, "y", "BFLOAT16", "FLOAT"});
  for (const auto& [parameter, name] : kParameters) {
    for (const aclFormat format : {ACL_FORMAT_NC1HWC0, ACL_FORMAT_FRACTAL_Z, ACL_FORMAT_FRACTAL_NZ,
                                   ACL_FORMAT_NDC1HWC0, ACL_FORMAT_NC1HWC0_C04}) {
      Call call;
      const Tensor& original = parameter == &Call::mask_at ? call.mask : call.y;
      aclTensor* other = original.make_handle(format);
      call.*parameter = other;
      call.refused(kInvalid, {std::string(kOp) + name, "format"});
      EXPECT_EQ(aclDestroyTensor(other), 0);
    }
    const aclDataType dtype = parameter == &Call::mask_at ? ACL_BOOL : ACL_FLOAT;
    for (const Dims& wrong : {Dims{}, Dims{4, 5}, Dims{6, 4, 5}, Dims{1, 2, 3, 4, 5}, Dims(9, 1)}) {
      refused_with(parameter, Tensor(wrong, dtype), {std::string(kOp) + name, "4"});
    }
  }
  for (const aclFormat format : {ACL_FORMAT_NCHW, ACL_FORMAT_NHWC, ACL_FORMAT_UNDEFINED}) {
    Call call;
    aclTensor* other = call.x.make_handle(format);
    call.x_at = other;
    call.refused(0, {""});
    EXPECT_EQ(aclDestroyTensor(other), 0);
  }
}

TEST(ScaledMaskedSoftmax, ErrorTableShapesAndFixedTriuMask) {
  refused_with(&Call::x_at, Tensor({1, 1, 1, 4097}, ACL_FLOAT),
               {kOp, "x has shape", "[1,1,1,4097]", "4096"});
  for (const Dims& dims : {Dims{3, 3, 4, 5}, Dims{2, 2, 4, 5}, Dims{2, 3, 1, 5}, Dims{2, 3, 4, 1},
                           Dims{0, 3, 4, 5}, Dims{1, 1, 5, 4}}) {
    refused_with(&Call::mask_at, Tensor(dims, ACL_BOOL), {kOp, "mask has shape", "[2,3,4,5]"});
  }
  refused_with(&Call::y_at, Tensor({2, 3, 4, 6}, ACL_FLOAT), {kOp, "y", "[2,3,4,6]", "[2,3,4,5]"});
  const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40, 4, 5}, still[] = {0, 0, 0, 0};
  Call many;
  aclTensor* endless =
      aclCreateTensor(huge, 4, ACL_FLOAT, still, 0, ACL_FORMAT_ND, huge, 0, nullptr);
  aclTensor* endless_mask =
      aclCreateTensor(huge, 4, ACL_BOOL, still, 0, ACL_FORMAT_ND, huge, 0, nullptr);
  many.x_at = many.y_at = endless;
  many.mask_at = endless_mask;
  many.refused(kInvalid, {kOp, "x"});
  EXPECT_EQ(aclDestroyTensor(endless) + aclDestroyTensor(endless_mask), 0);
  Call triangle;
  triangle.fixed_triu_mask = true;
  triangle.refused(kInvalid, {kOp, "fixedTriuMask", "true", "false"});
  const Tensor too_wide({1, 1, 1, 4097}, ACL_FLOAT);
  triangle.x_at = too_wide.handle();
  triangle.refused(kInvalid, {kOp, "4097"});  // fixedTriuMask is looked at last
}

// fixedTriuMask comes behind the bounds of views and their overlap too.
TEST(ScaledMaskedSoftmax, FixedTriuMaskIsTheLastCheck) {
  Call call;
  call.fixed_triu_mask = true;
  const Dims dims = {2, 3, 4, 5}, far = {1000000, 20, 5, 1};
  aclTensor* const beyond = aclCreateTensor(dims.data(), 4, ACL_FLOAT, far.data(), 0, ACL_FORMAT_ND,
                                            nullptr, 0, call.y.address());
  call.y_at = beyond;
  call.refused(kInvalid, {kOp, "y with shape", "allocation"});
  EXPECT_EQ(aclDestroyTensor(beyond), 0);
  call.y_at = call.x.handle();
  call.refused(kInvalid, {kOp, "y overlaps x"});
  call.y_at = call.y.handle();
  call.refused(kInvalid, {kOp, "fixedTriuMask", "true", "false"});
}

TEST(ScaledMaskedSoftmax, ErrorTableOverlap) {
  Call call;
  call.y_at = call.x_at;
  call.refused(kInvalid, {kOp, "y", "x"});  // there is no permitted in-place use
  Call shifted;
  const Dims strides = strides_of({2, 3, 4, 5}, Arrangement::kContiguous);
  const Tensor memory({2, 3, 4, 6}, ACL_FLOAT);
  const auto view = [&](int64_t offset) {
    const Dims dims = {2, 3, 4, 5};
    return aclCreateTensor(dims.data(), 4, ACL_FLOAT, strides.data(), offset, ACL_FORMAT_ND,
                           nullptr, 0, memory.address());
  };
  aclTensor *in = view(0), *out = view(1);
  shifted.x_at = in;
  shifted.y_at = out;
  shifted.refused(kInvalid, {kOp, "y", "x"});
  EXPECT_EQ(aclDestroyTensor(in) + aclDestroyTensor(out), 0);
  refused_with(&Call::y_at, Tensor({2, 3, 4, 5}, ACL_FLOAT, Dims{60, 20, 1, 1}), {kOp, "y"});
}

}  // namespace
}  // namespace aclgrad::test
