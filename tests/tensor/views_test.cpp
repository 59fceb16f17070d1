// SPDX-License-Identifier: Apache-2.0
// The two phases on views of all kinds: packing, in place, empty and absent tensors, and that
// nothing but the outputs is written.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "scale_add.h"
#include "support/arrangement.h"
#include "support/random.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

void expect_right(const ScaleAdd& call, const Tensor& x, const Tensor* y, const Tensor& out) {
  const std::vector<double> expected =
      scaled(x.values(), y == nullptr ? std::vector<double>() : y->values());
  const Outcome outcome = run_scale_add(call);
  ASSERT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(out.values(), expected);
  EXPECT_TRUE(out.untouched_outside());
}

constexpr Layout kLayouts[] = {kAnyStrides, rows_of(1), rows_of(2), kDense};

TEST(Phases, EveryArrangementUnderEveryLayout) {
  for (const Layout layout : kLayouts) {
    for (const Arrangement input : kInputArrangements) {
      for (const Arrangement output : kOutputArrangements) {
        SCOPED_TRACE(std::string(arrangement_name(input)) + " to " + arrangement_name(output) +
                     ", dense dims " + std::to_string(layout.contiguous_dims));
        Tensor x({3, 5, 7}, ACL_FLOAT, input);
        Tensor y({3, 5, 7}, ACL_FLOAT, output);
        Tensor out({3, 5, 7}, ACL_FLOAT, output);
        x.fill_integers(1, -99, 99);
        y.fill_integers(2, -99, 99);
        expect_right({.x = x.handle(), .y = y.handle(), .out = out.handle(), .layout = layout}, x,
                     &y, out);
        EXPECT_TRUE(x.untouched_outside());
        EXPECT_TRUE(y.untouched_outside());
      }
    }
  }
}

TEST(Phases, PacksExactlyWhatTheLayoutDoesNotTake) {
  struct Case {
    Dims dims, strides;
    bool rows_of_one, rows_of_two, dense;  // packed under each
  };
  const Case cases[] = {
      {{4, 6}, {6, 1}, false, false, false},
      {{4, 6}, {9, 1}, false, true, true},   // padded rows
      {{4, 6}, {-6, 1}, false, true, true},  // rows backwards
      {{4, 6}, {1, 4}, true, true, true},    // transposed
      {{4, 6}, {12, 2}, true, true, true},   // every second element
      {{3, 4, 6}, {30, 6, 1}, false, false, true},
      {{3, 1, 6}, {30, 777, 1}, false, false, true},  // dims of 1 step anywhere
      {{3, 4, 1}, {4, 1, 55}, false, false, false},
      {{1, 1, 1}, {7, 8, 9}, false, false, false},
      {{6}, {1}, false, false, false},
      {{6}, {2}, true, true, true},
      {{}, {}, false, false, false},
  };
  for (const Case& item : cases) {
    Tensor x(item.dims, ACL_FLOAT, item.strides);
    Tensor out(item.dims, ACL_FLOAT, item.strides);
    x.fill_integers(3, -9, 9);
    for (const auto& [layout, packed] :
         {std::pair{kAnyStrides, false}, std::pair{rows_of(1), item.rows_of_one},
          std::pair{rows_of(2), item.rows_of_two}, std::pair{kDense, item.dense}}) {
      SCOPED_TRACE(shape_text(item.dims.data(), item.dims.size()) +
                   shape_text(item.strides.data(), item.strides.size()) + " dense dims " +
                   std::to_string(layout.contiguous_dims));
      std::array<bool, 5> what{};
      expect_right({.x = x.handle(), .out = out.handle(), .layout = layout, .packed = &what}, x,
                   nullptr, out);
      EXPECT_EQ(what[0], packed);
      EXPECT_EQ(what[3], packed);
    }
  }
}

TEST(Phases, BroadcastInputsUnderRowLayoutsAreNotPacked) {
  Tensor x = Tensor::broadcast({5, 8}, ACL_FLOAT, {0});
  Tensor out({5, 8}, ACL_FLOAT);
  x.fill_integers(4, -9, 9);
  std::array<bool, 5> what{};
  expect_right({.x = x.handle(), .out = out.handle(), .layout = rows_of(1), .packed = &what}, x,
               nullptr, out);
  EXPECT_FALSE(what[0]);
}

TEST(Phases, RandomViews) {
  const uint64_t seed = seed_of_test(21);
  SCOPED_TRACE(replay(seed));
  Random random(seed);
  for (int i = 0; i < 150; ++i) {
    Dims dims;
    const int64_t rank = random.integer(0, 8);
    for (int64_t d = 0; d < rank; ++d) dims.push_back(random.integer(1, rank > 4 ? 3 : 6));
    std::vector<Tensor> tensors;
    for (int t = 0; t < 3; ++t) {
      std::vector<size_t> order(dims.size());
      for (size_t d = 0; d < order.size(); ++d) order[d] = d;
      for (size_t d = order.size(); d > 1; --d) {
        std::swap(order[d - 1],
                  order[static_cast<size_t>(random.integer(0, static_cast<int64_t>(d) - 1))]);
      }
      const int64_t step = random.integer(1, 2);
      Dims strides = strides_in_order(dims, order, step, random.integer(0, 3));
      for (int64_t& stride : strides) {
        if (random.chance(0.2)) stride = -stride;
      }
      tensors.emplace_back(dims, ACL_FLOAT, strides, random.integer(0, 5));
    }
    tensors[0].fill_integers(random.bits(), -99, 99);
    tensors[1].fill_integers(random.bits(), -99, 99);
    expect_right({.x = tensors[0].handle(),
                  .y = tensors[1].handle(),
                  .out = tensors[2].handle(),
                  .layout = random.pick(kLayouts)},
                 tensors[0], &tensors[1], tensors[2]);
    if (HasFailure()) FAIL() << "case " << i;
  }
}

// The expected values come from a run with separate tensors.
TEST(Phases, InPlaceGivesTheSameBitsHoweverItIsPacked) {
  for (const Layout layout : kLayouts) {
    for (const Arrangement arrangement : kOutputArrangements) {
      SCOPED_TRACE(arrangement_name(arrangement));
      for (const bool on_y : {false, true}) {
        Tensor x({4, 5}, ACL_FLOAT, arrangement);
        Tensor y({4, 5}, ACL_FLOAT, arrangement);
        x.fill_integers(5, -99, 99);
        y.fill_integers(6, -99, 99);
        const std::vector<double> expected = scaled(x.values(), y.values());
        const Tensor& target = on_y ? y : x;
        const Outcome outcome = run_scale_add({.x = x.handle(),
                                               .y = y.handle(),
                                               .out = target.handle(),
                                               .layout = layout,
                                               .in_place = true});
        ASSERT_TRUE(outcome.ok()) << outcome;
        EXPECT_EQ(target.values(), expected);
        EXPECT_TRUE(target.untouched_outside());
      }
    }
  }
}

TEST(Phases, InPlaceThroughAnotherHandleAndWithDimsOfOne) {
  Tensor x({1, 6}, ACL_FLOAT, Dims{6, 1});
  x.fill_integers(7, -9, 9);
  const std::vector<double> expected = scaled(x.values(), {});
  // The stride of a dimension of size 1 moves nothing.
  const int64_t dims[] = {1, 6}, strides[] = {999, 1}, storage[] = {6};
  aclTensor* other =
      aclCreateTensor(dims, 2, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, storage, 1, x.address());
  const Outcome outcome = run_scale_add({.x = x.handle(), .out = other, .in_place = true});
  EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(x.values(), expected);
  aclDestroyTensor(other);
}

TEST(Phases, EmptyTensorsAreNeverLookedAt) {
  const int64_t dims[] = {3, 0, 2};
  // Addresses that no one may touch, and null.
  for (void* address : {static_cast<void*>(nullptr), reinterpret_cast<void*>(uintptr_t{8})}) {
    aclTensor* x = aclCreateTensor(dims, 3, ACL_FLOAT, nullptr, 5, ACL_FORMAT_ND, dims, 3, address);
    aclTensor* out =
        aclCreateTensor(dims, 3, ACL_FLOAT, nullptr, -5, ACL_FORMAT_ND, nullptr, 0, address);
    for (const Layout layout : kLayouts) {
      const Outcome outcome = run_scale_add({.x = x, .y = x, .out = out, .layout = layout});
      EXPECT_TRUE(outcome.ok()) << outcome;
      EXPECT_EQ(outcome.workspace_size, 0u);
    }
    aclDestroyTensor(x);
    aclDestroyTensor(out);
  }
}

TEST(Phases, UnusedTensorsNeedNoAddress) {
  Tensor x({4}, ACL_FLOAT), out({4}, ACL_FLOAT);
  x.fill_integers(11, -9, 9);
  const int64_t dims[] = {1 << 20};
  aclTensor* bias =
      aclCreateTensor(dims, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
  expect_right({.x = x.handle(), .bias = bias, .out = out.handle()}, x, nullptr, out);
  // It may even lie over the output.
  aclSetRawTensorAddr(bias, out.address());
  expect_right({.x = x.handle(), .bias = bias, .out = out.handle()}, x, nullptr, out);
  aclDestroyTensor(bias);
}

}  // namespace
}  // namespace aclgrad::test
