// SPDX-License-Identifier: Apache-2.0
// The one pack and unpack against a plain loop.
#include "kernels/cpu/strided_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "support/random.h"

namespace aclgrad {
namespace {

using test::Random;

constexpr uint8_t kUnwritten = 0xA5;

struct Buffer {
  std::vector<uint8_t> bytes;
  int64_t first = 0;  // byte of element (0, 0, ...)
  void* at() { return bytes.data() + first; }
};

// Memory that the view just fits in, plus `lead` bytes before it (any alignment) and a few behind.
Buffer make_buffer(const View& view, int64_t lead) {
  const auto size = static_cast<int64_t>(dtype_size(view.dtype));
  int64_t low = 0;
  int64_t high = 0;
  for (int i = 0; i < view.rank; ++i) {
    const auto dim = static_cast<size_t>(i);
    const int64_t reach = (view.dims[dim] - 1) * view.strides[dim] * size;
    (reach < 0 ? low : high) += reach;
  }
  Buffer buffer;
  buffer.bytes.assign(static_cast<size_t>(high - low + size + lead + 16), kUnwritten);
  buffer.first = lead - low;
  return buffer;
}

template <class Visit>
void for_each_index(const View& view, Visit&& visit) {
  const int64_t count = view.numel();
  for (int64_t i = 0; i < count; ++i) {
    std::array<int64_t, kMaxRank> index{};
    int64_t rest = i;
    for (int d = view.rank - 1; d >= 0; --d) {
      const auto dim = static_cast<size_t>(d);
      index[dim] = rest % view.dims[dim];
      rest /= view.dims[dim];
    }
    visit(index);
  }
}

int64_t byte_of(const View& view, const std::array<int64_t, kMaxRank>& index) {
  int64_t element = 0;
  for (int i = 0; i < view.rank; ++i) {
    const auto dim = static_cast<size_t>(i);
    element += index[dim] * view.strides[dim];
  }
  return element * static_cast<int64_t>(dtype_size(view.dtype));
}

void expect_copied(const View& from, const View& to, int64_t lead, CopyOrder order,
                   Random& random) {
  Buffer source = make_buffer(from, lead);
  for (uint8_t& byte : source.bytes) byte = static_cast<uint8_t>(random.bits());
  Buffer target = make_buffer(to, lead + 1);
  Buffer expected = target;
  const size_t size = dtype_size(to.dtype);
  for_each_index(to, [&](const std::array<int64_t, kMaxRank>& index) {
    std::copy_n(source.bytes.data() + source.first + byte_of(from, index), size,
                expected.bytes.data() + expected.first + byte_of(to, index));
  });
  strided_copy(from, source.at(), to, target.at(), order);
  ASSERT_TRUE(target.bytes == expected.bytes) << "elements of " << size << " bytes";
}

// A view of the dims in which no two indices share an element: dimensions in random order, gaps and
// signs.
View random_layout(aclDataType dtype, const std::vector<int64_t>& dims, Random& random,
                   bool broadcast) {
  View view;
  view.dtype = dtype;
  view.rank = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), view.dims.begin());
  std::vector<size_t> order(dims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1],
              order[static_cast<size_t>(random.integer(0, static_cast<int64_t>(i) - 1))]);
  }
  int64_t step = random.chance(0.7) ? 1 : random.integer(2, 3);
  for (const size_t dim : order) {
    view.strides[dim] = random.chance(0.2) ? -step : step;
    if (broadcast && random.chance(0.2)) {
      view.strides[dim] = 0;
      continue;
    }
    step = step * dims[dim] + (random.chance(0.3) ? random.integer(1, 5) : 0);
  }
  return view;
}

constexpr aclDataType kDtypes[] = {ACL_INT8, ACL_FLOAT16, ACL_FLOAT, ACL_INT64, ACL_COMPLEX128};

TEST(StridedCopy, RandomViewsOfEveryElementSize) {
  const uint64_t seed = test::seed_of_test(11);
  SCOPED_TRACE(test::replay(seed));
  Random random(seed);
  for (int i = 0; i < 3000; ++i) {
    std::vector<int64_t> dims;
    const int64_t rank = random.integer(0, 5);
    for (int64_t d = 0; d < rank; ++d) {
      dims.push_back(random.chance(0.1) ? 1 : random.integer(1, rank <= 2 ? 90 : 7));
    }
    const aclDataType dtype = random.pick(kDtypes);
    const View from = random_layout(dtype, dims, random, true);
    const View to = random_layout(dtype, dims, random, false);
    const CopyOrder order = random.chance(0.5) ? CopyOrder::kParallel : CopyOrder::kSequential;
    expect_copied(from, to, random.integer(0, 9), order, random);
    if (HasFatalFailure()) FAIL() << "case " << i;
  }
}

// Many blocks, on several threads.
TEST(StridedCopy, LargeViews) {
  const int threads = aclgrad_threads();
  aclgrad_use_threads(3);
  const uint64_t seed = test::seed_of_test(12);
  SCOPED_TRACE(test::replay(seed));
  Random random(seed);
  const std::vector<std::vector<int64_t>> shapes = {
      {1, 1 << 20}, {1 << 20, 1},  {1000, 1001},     {3, 300000},
      {300000, 3},  {7, 123, 457}, {129, 65, 5, 17}, {2, 2, 2, 2, 2, 2, 2, 4096}};
  for (const std::vector<int64_t>& dims : shapes) {
    for (const aclDataType dtype : kDtypes) {
      const View from = random_layout(dtype, dims, random, true);
      const View to = random_layout(dtype, dims, random, false);
      expect_copied(from, to, random.integer(0, 9), CopyOrder::kParallel, random);
    }
  }
  aclgrad_use_threads(threads);
}

TEST(StridedCopy, TransposedEightDimensions) {
  Random random(13);
  const std::vector<int64_t> dims = {2, 3, 2, 3, 2, 3, 2, 3};
  View from = contiguous_view(ACL_FLOAT, 8, {2, 3, 2, 3, 2, 3, 2, 3});
  View to = from;
  std::array<int64_t, kMaxRank> backwards{};
  int64_t step = 1;
  for (size_t i = 0; i < kMaxRank; ++i) {
    backwards[i] = step;
    step *= dims[i];
  }
  to.strides = backwards;
  expect_copied(from, to, 0, CopyOrder::kParallel, random);
}

TEST(StridedCopy, NothingForEmptyViews) {
  View empty = contiguous_view(ACL_FLOAT, 3, {2, 0, 3});
  strided_copy(empty, nullptr, empty, nullptr);
  uint32_t value = 7;
  strided_copy(empty, &value, empty, &value);
  EXPECT_EQ(value, 7u);
}

TEST(StridedCopy, RepeatedTargetsEndWithTheLastIndex) {
  // Both orders of an overlapping target that cannot be told cheaply must give the same bytes.
  View from = contiguous_view(ACL_FLOAT, 2, {4, 3});
  View to = from;
  to.strides = {1, 1};
  std::vector<uint32_t> source(12);
  std::iota(source.begin(), source.end(), 0u);
  std::vector<uint32_t> first(6), second(6);
  strided_copy(from, source.data(), to, first.data(), CopyOrder::kSequential);
  strided_copy(from, source.data(), to, second.data(), CopyOrder::kSequential);
  EXPECT_EQ(first, second);
  for (size_t i = 0; i < first.size(); ++i) {
    bool possible = false;
    for (uint32_t row = 0; row < 4; ++row) {
      for (uint32_t col = 0; col < 3; ++col) {
        possible = possible || (row + col == i && first[i] == row * 3 + col);
      }
    }
    EXPECT_TRUE(possible) << i;
  }
}

}  // namespace
}  // namespace aclgrad
