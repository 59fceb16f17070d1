// SPDX-License-Identifier: Apache-2.0
// Copies of parts of rows of random views, against the arithmetic of their indices.
#include "kernels/cpu/segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "support/random.h"

namespace aclgrad::test {
namespace {

// A view whose elements do not share memory, unless `repeated`; its lowest element is `lowest`
// elements before its first one.
struct RandomView {
  View view;
  int row_dim = 0;
  int64_t lowest = 0, size = 1;
};

RandomView random_view(Random& random, bool repeated) {
  RandomView out;
  View& view = out.view;
  view.dtype = ACL_FLOAT;
  view.rank = static_cast<int>(random.integer(1, 5));
  out.row_dim = static_cast<int>(random.integer(0, view.rank));
  std::vector<size_t> order(static_cast<size_t>(view.rank));
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = order.size(); i-- > 1;) {
    if (random.chance(0.3)) std::swap(order[i], order[i - 1]);
  }
  for (size_t i = order.size(); i-- > 0;) {
    const size_t dim = order[i];
    view.dims[dim] = random.chance(0.2) ? 1 : random.integer(2, 7);
    const int64_t step = out.size + (random.chance(0.3) ? random.integer(1, 5) : 0);
    view.strides[dim] = random.chance(0.2) ? -step : step;
    if (repeated && random.chance(0.3)) view.strides[dim] = 0;
    const int64_t reach = (view.dims[dim] - 1) * view.strides[dim];
    out.lowest = std::min(out.lowest, out.lowest + reach);
    out.size = step * view.dims[dim];
  }
  return out;
}

// Where column `col` lies, from the first one.
int64_t offset_of(const RandomView& random, int64_t col) {
  int64_t offset = 0;
  for (int i = random.view.rank; i-- > random.row_dim;) {
    const auto dim = static_cast<size_t>(i);
    offset += col % random.view.dims[dim] * random.view.strides[dim];
    col /= random.view.dims[dim];
  }
  return offset;
}

int64_t columns_of(const RandomView& random) {
  int64_t cols = 1;
  for (int i = random.row_dim; i < random.view.rank; ++i) {
    cols *= random.view.dims[static_cast<size_t>(i)];
  }
  return cols;
}

TEST(Segments, DenseMeansThatEveryColumnLiesAtItsNumber) {
  uint64_t seed = seed_of_test(1);
  int dense_views = 0;
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(replay(++seed));
    Random random(seed);
    const RandomView view = random_view(random, random.chance(0.5));
    bool dense = true;
    for (int64_t col = 0; col < columns_of(view); ++col) {
      dense = dense && offset_of(view, col) == col;
    }
    EXPECT_EQ(Segments(view.view, view.row_dim).dense(), dense);
    dense_views += dense ? 1 : 0;
  }
  EXPECT_GT(dense_views, 300);
  EXPECT_LT(dense_views, 2700);
}

TEST(Segments, CopyInBringsTheColumnsAskedForInOrder) {
  uint64_t seed = seed_of_test(10001);
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(replay(++seed));
    Random random(seed);
    const RandomView view = random_view(random, random.chance(0.5));
    const Segments segments(view.view, view.row_dim);
    if (segments.dense()) continue;
    std::vector<int32_t> memory(static_cast<size_t>(view.size - view.lowest));
    std::iota(memory.begin(), memory.end(), 1);
    const int32_t* row = memory.data() - view.lowest;
    const int64_t cols = columns_of(view);
    const int64_t begin = random.integer(0, cols - 1);
    const int64_t count = random.integer(1, cols - begin);
    std::vector<int32_t> out(static_cast<size_t>(count) + 1, -1);
    segments.copy_in(row, begin, count, out.data());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(out[static_cast<size_t>(i)], row[offset_of(view, begin + i)]);
    }
    EXPECT_EQ(out.back(), -1);
  }
}

TEST(Segments, CopyOutWritesThoseColumnsAndNothingElse) {
  uint64_t seed = seed_of_test(20001);
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(replay(++seed));
    Random random(seed);
    const RandomView view = random_view(random, false);
    const Segments segments(view.view, view.row_dim);
    if (segments.dense()) continue;
    const int64_t cols = columns_of(view);
    const int64_t begin = random.integer(0, cols - 1);
    const int64_t count = random.integer(1, cols - begin);
    std::vector<uint16_t> in(static_cast<size_t>(count));
    std::iota(in.begin(), in.end(), uint16_t{1});
    std::vector<uint16_t> memory(static_cast<size_t>(view.size - view.lowest), 0);
    std::vector<uint16_t> expected = memory;
    for (int64_t i = 0; i < count; ++i) {
      expected[static_cast<size_t>(offset_of(view, begin + i) - view.lowest)] =
          in[static_cast<size_t>(i)];
    }
    segments.copy_out(in.data(), begin, count, memory.data() - view.lowest);
    ASSERT_EQ(memory, expected);
  }
}

}  // namespace
}  // namespace aclgrad::test
