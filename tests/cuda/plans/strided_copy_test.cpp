// SPDX-License-Identifier: Apache-2.0
// How strided copies are cut: each element's place is met once, in accesses that are aligned.
#include "kernels/cuda/strided_copy_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda/plans/covered.h"
#include "support/view.h"

namespace aclgrad::test {
namespace {

using cuda::CopyKind;
using cuda::CopyPlan;
using cuda::Divisor;

// Bytes of the target, and where they come from.
using Bytes = std::vector<std::pair<int64_t, int64_t>>;
void move(Bytes& moved, int64_t source, int64_t target, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) moved.emplace_back(target * bytes + i, source * bytes + i);
}

Bytes by_definition(const View& from, const View& to) {
  Bytes moved;
  const auto bytes = static_cast<int64_t>(dtype_size(to.dtype));
  for (int64_t number = 0; number < to.numel(); ++number) {
    int64_t left = number, source = 0, target = 0;
    for (int i = to.rank - 1; i >= 0; --i) {
      const auto index = static_cast<size_t>(i);
      source += left % to.dims[index] * from.strides[index];
      target += left % to.dims[index] * to.strides[index];
      left /= to.dims[index];
    }
    move(moved, source, target, bytes);
  }
  std::sort(moved.begin(), moved.end());
  return moved;
}

// What the kernel would do.
template <class Number>
Bytes by_plan(const CopyPlan& plan) {
  Bytes moved;
  for (int64_t number = 0; number < plan.count; ++number) {
    const cuda::CopyPlace place = cuda::place_in_copy(plan, static_cast<Number>(number));
    if (plan.kind != CopyKind::kTiles) {
      move(moved, place.source, place.target, plan.bytes);
      continue;
    }
    const int64_t edge = cuda::tile_edge(plan.bytes);
    for (int64_t i = 0; i < edge; ++i) {
      for (int64_t j = 0; j < edge; ++j) {
        if (place.index[0] * edge + i >= plan.inner[0].count) continue;
        if (place.index[1] * edge + j >= plan.inner[1].count) continue;
        move(moved, place.source + i * plan.inner[0].source + j * plan.inner[1].source,
             place.target + i * plan.inner[0].target + j * plan.inner[1].target, plan.bytes);
      }
    }
  }
  std::sort(moved.begin(), moved.end());
  return moved;
}

void expect_right(const View& from, const View& to, uintptr_t addresses, const std::string& name) {
  const Bytes expected = by_definition(from, to);
  for (const bool in_order : {false, true}) {
    const CopyPlan plan = cuda::plan_copy(from, to, in_order, addresses);
    EXPECT_TRUE(by_plan<uint64_t>(plan) == expected) << name;
    if (in_order) continue;
    EXPECT_TRUE(by_plan<uint32_t>(plan) == expected) << name;
    const int64_t at_once = plan.kind == CopyKind::kTiles
                                ? 1
                                : int64_t{cuda::kCopyTuning.threads} * cuda::kCopyTuning.accesses;
    expect_launch(plan.launch, plan.count, at_once, name);
  }
}

TEST(StridedCopyPlan, DivisorsDivide) {
  std::mt19937_64 random(1);
  std::vector<uint32_t> values = {1,     2,     3,     5,           7,          641,
                                  65535, 65536, 65537, 0x7FFFFFFFu, 0x80000000u};
  for (int i = 0; i < 200; ++i) {
    values.push_back(1 + static_cast<uint32_t>(random() >> (33 + random() % 31)));
  }
  for (const uint32_t value : values) {
    const Divisor divisor(value);
    std::vector<uint32_t> numbers = {0, 1, value - 1, value, 0x7FFFFFFFu};
    for (int i = 0; i < 200; ++i) {
      const auto number = static_cast<uint32_t>(random() >> 33);
      const uint32_t multiple = number / value * value;
      for (const uint32_t each : {number, multiple, multiple > 0 ? multiple - 1 : 0}) {
        numbers.push_back(each);
      }
    }
    for (const uint32_t number : numbers) {
      if (number > 0x7FFFFFFFu) continue;
      ASSERT_EQ(divisor.divide(number), number / value) << number << " / " << value;
    }
  }
}

TEST(StridedCopyPlan, EveryByteIsMovedOnce) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 400; ++round) {
    const auto below = [&](int64_t most) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    };
    const aclDataType dtypes[] = {ACL_BOOL, ACL_FLOAT16, ACL_FLOAT, ACL_DOUBLE, ACL_COMPLEX128};
    const aclDataType dtype = dtypes[below(5)];
    const auto rank = static_cast<size_t>(below(5));
    std::vector<int64_t> dims(rank), source(rank), target(rank);
    int64_t elements = 1;
    for (int64_t& dim : dims) {
      const int64_t size = 1 + below(20);
      dim = below(3) == 0 ? 8 * (1 + size % 3) : size;
      if (elements * dim > 3000) dim = 1 + size % 2;
      elements *= dim;
    }
    // Each lies in some order of its dimensions, with gaps, some of them backwards.
    for (std::vector<int64_t>* strides : {&source, &target}) {
      std::vector<size_t> order(rank);
      for (size_t i = 0; i < rank; ++i) order[i] = i;
      for (size_t i = rank; i > 1; --i) {
        if (below(3) == 0) std::swap(order[i - 1], order[static_cast<size_t>(below(3)) % i]);
      }
      int64_t step = below(6) == 0 ? 2 : 1;
      for (size_t i = rank; i-- > 0;) {
        (*strides)[order[i]] = below(8) == 0 ? -step : step;
        step *= dims[order[i]];
        if (below(3) == 0) step += below(2) == 0 ? 8 : 1;
      }
    }
    if (rank > 0 && below(5) == 0) source[static_cast<size_t>(below(2)) % rank] = 0;
    const uintptr_t addresses = uintptr_t{16} + (uintptr_t{dtype_size(dtype)} << below(4));
    expect_right(make_view(dtype, dims, source), make_view(dtype, dims, target), addresses,
                 "round " + std::to_string(round));
  }
}

TEST(StridedCopyPlan, RunsAreTakenInWideAccesses) {
  const auto bytes = [](aclDataType dtype, int64_t cols, int64_t pitch, uintptr_t addresses) {
    return cuda::plan_copy(make_view(dtype, {10, cols}, {pitch, 1}),
                           make_view(dtype, {10, cols}, {cols, 1}), false, addresses)
        .bytes;
  };
  EXPECT_EQ(bytes(ACL_FLOAT16, 64, 128, 256), 16);
  EXPECT_EQ(bytes(ACL_FLOAT16, 64, 128, 256 + 8), 8);
  EXPECT_EQ(bytes(ACL_FLOAT16, 64, 66, 256), 4);
  EXPECT_EQ(bytes(ACL_FLOAT16, 63, 128, 256), 2);
  EXPECT_EQ(bytes(ACL_BOOL, 48, 64, 256), 16);
  EXPECT_EQ(bytes(ACL_FLOAT, 4, 8, 256), 16);
}

TEST(StridedCopyPlan, TranspositionsGoThroughTiles) {
  for (const aclDataType dtype : {ACL_BOOL, ACL_FLOAT16, ACL_FLOAT, ACL_DOUBLE, ACL_COMPLEX128}) {
    const View from = make_view(dtype, {3, 100, 70}, {7000, 1, 100});
    const View to = make_view(dtype, {3, 100, 70}, {7000, 70, 1});
    EXPECT_EQ(cuda::plan_copy(from, to, false, 256).kind, CopyKind::kTiles);
    expect_right(from, to, 256, "transposed");
  }
  // Hardly anything of a tile would be used.
  EXPECT_EQ(cuda::plan_copy(make_view(ACL_FLOAT, {1000, 4}, {1, 1000}),
                            make_view(ACL_FLOAT, {1000, 4}, {4, 1}), false, 256)
                .kind,
            CopyKind::kAccesses);
}

TEST(StridedCopyPlan, LargeCopiesCountInSixtyFourBits) {
  const int64_t rows = int64_t{1} << 31;
  const CopyPlan plan = cuda::plan_copy(make_view(ACL_FLOAT, {rows, 3}, {4, 1}),
                                        make_view(ACL_FLOAT, {rows, 3}, {3, 1}), false, 256);
  EXPECT_TRUE(plan.wide);
  const cuda::CopyPlace last = cuda::place_in_copy(plan, static_cast<uint64_t>(plan.count - 1));
  EXPECT_EQ(last.source, (rows - 1) * 4 + 2);
  EXPECT_EQ(last.target, rows * 3 - 1);
  const CopyPlan small = cuda::plan_copy(make_view(ACL_FLOAT, {rows / 4, 3}, {4, 1}),
                                         make_view(ACL_FLOAT, {rows / 4, 3}, {3, 1}), false, 256);
  EXPECT_FALSE(small.wide);
  EXPECT_EQ(cuda::place_in_copy(small, static_cast<uint32_t>(small.count - 1)).target,
            rows / 4 * 3 - 1);
}

// Rows of a tile, and its columns, are met without two lanes in one bank of shared memory.
TEST(StridedCopyPlan, ColumnsOfATileLieInDifferentBanks) {
  for (const int bytes : {1, 2, 4}) {
    std::vector<int> taken(cuda::kWarpLanes);
    for (int lane = 0; lane < cuda::kWarpLanes; ++lane) {
      ++taken[static_cast<size_t>(lane * cuda::tile_pitch(bytes) * bytes / 4 % cuda::kWarpLanes)];
    }
    EXPECT_EQ(taken, std::vector<int>(cuda::kWarpLanes, 1)) << bytes;
  }
}

}  // namespace
}  // namespace aclgrad::test
