// SPDX-License-Identifier: Apache-2.0
// The decision about overlap against brute force on small views, and on large ones whose answer is
// known.
#include "tensor/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <vector>

#include "support/random.h"
#include "support/view.h"

namespace aclgrad {
namespace {

using test::make_view;
using test::Random;

// Byte offsets of all elements, in index order.
std::vector<int64_t> element_offsets(const View& view) {
  std::vector<int64_t> offsets{0};
  for (int i = 0; i < view.rank; ++i) {
    const auto dim = static_cast<size_t>(i);
    std::vector<int64_t> next;
    for (const int64_t base : offsets) {
      for (int64_t k = 0; k < view.dims[dim]; ++k) {
        next.push_back(base + k * view.strides[dim] * static_cast<int64_t>(dtype_size(view.dtype)));
      }
    }
    offsets = std::move(next);
  }
  return offsets;
}

std::set<int64_t> byte_set(const View& view, int64_t address) {
  std::set<int64_t> bytes;
  for (const int64_t offset : element_offsets(view)) {
    for (size_t i = 0; i < dtype_size(view.dtype); ++i) {
      bytes.insert(address + offset + static_cast<int64_t>(i));
    }
  }
  return bytes;
}

View random_view(Random& random) {
  const aclDataType dtypes[] = {ACL_INT8, ACL_FLOAT16, ACL_FLOAT, ACL_INT64, ACL_COMPLEX128};
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
  const int64_t rank = random.integer(0, 4);
  for (int64_t i = 0; i < rank; ++i) {
    dims.push_back(random.integer(1, 5));
    strides.push_back(random.integer(-30, 30));
  }
  return make_view(random.pick(dtypes), dims, strides);
}

TEST(Overlap, TwoViewsAgreeWithBruteForce) {
  const uint64_t seed = test::seed_of_test(1);
  SCOPED_TRACE(test::replay(seed));
  Random random(seed);
  int64_t overlapping = 0;
  for (int i = 0; i < 20000; ++i) {
    const View a = random_view(random);
    const View b = random_view(random);
    const int64_t address_a = 100000;
    const int64_t address_b = address_a + random.integer(-300, 300);
    const std::set<int64_t> bytes = byte_set(a, address_a);
    bool expected = false;
    for (const int64_t byte : byte_set(b, address_b)) expected = expected || bytes.contains(byte);
    const Overlap got =
        views_overlap(a, static_cast<uintptr_t>(address_a), b, static_cast<uintptr_t>(address_b));
    ASSERT_EQ(got, expected ? Overlap::kYes : Overlap::kNo) << "case " << i;
    ASSERT_EQ(
        views_overlap(b, static_cast<uintptr_t>(address_b), a, static_cast<uintptr_t>(address_a)),
        got)
        << "case " << i;
    overlapping += expected ? 1 : 0;
  }
  EXPECT_GT(overlapping, 2000);
  EXPECT_LT(overlapping, 18000);
}

TEST(Overlap, OneViewAgreesWithBruteForce) {
  const uint64_t seed = test::seed_of_test(2);
  SCOPED_TRACE(test::replay(seed));
  Random random(seed);
  int64_t overlapping = 0;
  for (int i = 0; i < 20000; ++i) {
    const View view = random_view(random);
    std::vector<int64_t> offsets = element_offsets(view);
    std::sort(offsets.begin(), offsets.end());
    const bool expected = std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end();
    ASSERT_EQ(self_overlap(view), expected ? Overlap::kYes : Overlap::kNo) << "case " << i;
    overlapping += expected ? 1 : 0;
  }
  EXPECT_GT(overlapping, 2000);
  EXPECT_LT(overlapping, 18000);
}

TEST(Overlap, ExtentIsTheReach) {
  const uint64_t seed = test::seed_of_test(3);
  SCOPED_TRACE(test::replay(seed));
  Random random(seed);
  for (int i = 0; i < 2000; ++i) {
    const View view = random_view(random);
    const std::set<int64_t> bytes = byte_set(view, 0);
    EXPECT_EQ(extent_of(view).low, *bytes.begin());
    EXPECT_EQ(extent_of(view).high, *bytes.rbegin() + 1);
  }
}

TEST(Overlap, InterleavedHalvesOfLargeTensorsAreTold) {
  // Columns [0, 512) and [512, 1024) of one matrix.
  const View half = make_view(ACL_FLOAT, {4096, 512}, {1024, 1});
  EXPECT_EQ(views_overlap(half, 1 << 20, half, (1 << 20) + 512 * 4), Overlap::kNo);
  EXPECT_EQ(views_overlap(half, 1 << 20, half, (1 << 20) + 511 * 4), Overlap::kYes);
  // Even and odd elements, and the same with an odd number of bytes between them.
  const View every_second = make_view(ACL_FLOAT16, {1 << 20}, {2});
  EXPECT_EQ(views_overlap(every_second, 4096, every_second, 4098), Overlap::kNo);
  EXPECT_EQ(views_overlap(every_second, 4096, every_second, 4099), Overlap::kYes);
  // A matrix and its transposed self.
  const View matrix = make_view(ACL_FLOAT, {300, 700}, {700, 1});
  const View transposed = make_view(ACL_FLOAT, {300, 700}, {1, 300});
  EXPECT_EQ(views_overlap(matrix, 4096, transposed, 4096), Overlap::kYes);
}

TEST(Overlap, EmptyAndRepeatedDimensions) {
  EXPECT_EQ(self_overlap(make_view(ACL_FLOAT, {0, 5}, {0, 0})), Overlap::kNo);
  EXPECT_EQ(self_overlap(make_view(ACL_FLOAT, {2, 5}, {0, 1})), Overlap::kYes);
  EXPECT_EQ(self_overlap(make_view(ACL_FLOAT, {1, 5}, {0, 1})), Overlap::kNo);
  // Sliding windows.
  EXPECT_EQ(self_overlap(make_view(ACL_FLOAT, {100, 3}, {1, 1})), Overlap::kYes);
  EXPECT_EQ(self_overlap(make_view(ACL_FLOAT, {100, 3}, {3, 1})), Overlap::kNo);
  EXPECT_EQ(self_overlap(make_view(ACL_FLOAT, {3, 2}, {2, 3})), Overlap::kNo);
  EXPECT_EQ(self_overlap(make_view(ACL_FLOAT, {4, 3}, {2, 3})), Overlap::kYes);
}

// Eight dimensions whose steps are alike: the worst the search can be given. It may say that it
// does not know, but must say so soon.
TEST(Overlap, HardCasesEndSoon) {
  const uint64_t seed = test::seed_of_test(4);
  SCOPED_TRACE(test::replay(seed));
  Random random(seed);
  const auto start = std::chrono::steady_clock::now();
  constexpr int kCases = 50;
  for (int i = 0; i < kCases; ++i) {
    std::vector<int64_t> dims;
    std::vector<int64_t> strides;
    for (int k = 0; k < kMaxRank; ++k) {
      dims.push_back(random.integer(3, 9));
      strides.push_back(2 * random.integer(1'000'000, 2'000'000));
    }
    const View a = make_view(ACL_INT8, dims, strides);
    const View b = make_view(ACL_INT8, dims, strides);
    EXPECT_EQ(views_overlap(a, 1 << 30, b, (1 << 30) + 1), Overlap::kNo);  // odd and even
    static_cast<void>(views_overlap(
        a, 1 << 30, b, static_cast<uintptr_t>((1 << 30) + 2 * random.integer(1, 1000))));
    static_cast<void>(self_overlap(a));
  }
  const auto taken = std::chrono::steady_clock::now() - start;
  EXPECT_LT(std::chrono::duration<double>(taken).count(), 0.1 * kCases);
}

TEST(Overlap, GivesUpWithinItsWork) {
  const View a = make_view(ACL_INT8, {50, 50, 50, 50}, {1000003, 1000033, 1000037, 1000039});
  const View b = make_view(ACL_INT8, {50, 50, 50, 50}, {1000081, 1000099, 1000117, 1000121});
  EXPECT_EQ(views_overlap(a, 1 << 30, b, (1 << 30) + 777, 10), Overlap::kUndecided);
}

TEST(Overlap, ReachesNearTheEndOfInt64) {
  constexpr int64_t kFar = int64_t{1} << 60;
  const View a = make_view(ACL_INT8, {2, 3}, {kFar, 7});
  const View b = make_view(ACL_INT8, {2, 3}, {-kFar, 7});
  EXPECT_EQ(views_overlap(a, 4096, b, 4096), Overlap::kYes);
  EXPECT_EQ(views_overlap(a, 4096, b, 4097), Overlap::kNo);
  EXPECT_EQ(self_overlap(a), Overlap::kNo);
}

}  // namespace
}  // namespace aclgrad
