// SPDX-License-Identifier: Apache-2.0
// Operands that overlap: what is refused, what is permitted in place, and what is made safe because
// nobody can tell.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "addresses.h"
#include "runtime/services.h"
#include "scale_add.h"
#include "support/random.h"
#include "tensor/overlap.h"

namespace aclgrad::test {
namespace {

TEST(Overlaps, ProvenOverlapIsRefusedAndInterleavingIsNot) {
  const DeviceMemory memory(1 << 16), other(1 << 16);
  const Handle y({10, 10}, {10, 1}, other.get());
  float* base = floats(memory);
  const Handle rows({10, 10}, {20, 1}, base);
  const Handle beside({10, 10}, {20, 1}, base + 10);
  const Handle shifted({10, 10}, {20, 1}, base + 9);
  expect_accepted({.x = rows.get(), .out = beside.get()});
  expect_accepted({.x = beside.get(), .y = y.get(), .out = rows.get(), .layout = kDense});
  expect_refused_in_both({.x = rows.get(), .out = shifted.get()}, {"out overlaps x"});
  expect_refused_in_both({.x = y.get(), .y = rows.get(), .out = shifted.get()},
                         {"out overlaps yOptional"});
  // Two outputs.
  expect_accepted({.x = y.get(), .out = rows.get(), .copy_out = beside.get()});
  expect_refused_in_both({.x = y.get(), .out = rows.get(), .copy_out = shifted.get()},
                         {"out overlaps copyOutOptional"});
  expect_refused_in_both(
      {.x = y.get(), .out = rows.get(), .copy_out = rows.get(), .in_place = true},
      {"out overlaps copyOutOptional"});
  // Inputs may lie on each other as they like.
  expect_accepted({.x = rows.get(), .y = shifted.get(), .out = y.get()});
  if (aclgrad_has_device_queues()) return;  // a GPU takes whole elements only
  // Half an element.
  const Handle half({10, 10}, {20, 1}, reinterpret_cast<std::byte*>(base) + 38);
  expect_refused_in_both({.x = rows.get(), .out = half.get()}, {"out overlaps x"});
}

TEST(Overlaps, InPlaceOnlyWhereItIsPermittedAndTheVerySameView) {
  const DeviceMemory memory(4096), other(4096);
  const Handle x({6, 6}, {6, 1}, memory.get());
  const Handle same({6, 6}, {6, 1}, floats(memory) - 1, 1);
  const Handle transposed({6, 6}, {1, 6}, memory.get());
  const Handle later({6, 6}, {6, 1}, memory.get(), 1);
  const Handle y({6, 6}, {6, 1}, other.get());
  expect_refused_in_both({.x = x.get(), .out = x.get()}, {"out overlaps x"});
  expect_accepted({.x = x.get(), .out = x.get(), .in_place = true});
  expect_accepted({.x = x.get(), .y = x.get(), .out = x.get(), .in_place = true});
  expect_refused_in_both({.x = x.get(), .out = transposed.get(), .in_place = true},
                         {"out overlaps x"});
  expect_refused_in_both({.x = x.get(), .out = later.get(), .in_place = true}, {"out overlaps x"});
  // In place on one input, over half of the other.
  expect_refused_in_both({.x = x.get(), .y = later.get(), .out = x.get(), .in_place = true},
                         {"out overlaps yOptional"});
  // The base lies before its allocation, but element (0, 0) is where x has it.
  expect_refused_in_both({.x = x.get(), .out = same.get(), .in_place = true}, {"out"});
  const Handle inside({6, 6}, {6, 1}, floats(memory) + 1, -1);
  expect_accepted({.x = x.get(), .out = inside.get(), .in_place = true});
}

TEST(Overlaps, OutputsWithTwoIndicesAtOneAddress) {
  const DeviceMemory memory(4096), other(4096);
  const Handle x({6, 6}, {6, 1}, other.get());
  for (const Dims& strides :
       {Dims{0, 1}, Dims{1, 0}, Dims{1, 1}, Dims{5, 1}, Dims{-1, 1}, Dims{2, 3}}) {
    const Handle out({6, 6}, strides, memory.get(), 20);
    // Strides alone decide: phase one refuses without an address too.
    for (void* address : {memory.get(), static_cast<void*>(nullptr)}) {
      ASSERT_EQ(aclSetRawTensorAddr(out.get(), address), 0);
      expect_refused(
          [&](uint64_t* size, aclOpExecutor** executor) {
            return plan({.x = x.get(), .out = out.get()}, size, executor);
          },
          161002, {"aclnnScaleAdd: out", "two indices at one address"});
    }
    ASSERT_EQ(aclSetRawTensorAddr(out.get(), memory.get()), 0);
    expect_accepted({.x = out.get(), .out = x.get()});  // an input may
  }
}

View flat_view(const Dims& dims, const Dims& strides) {
  View view;
  view.dtype = ACL_FLOAT;
  view.rank = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), view.dims.begin());
  std::copy(strides.begin(), strides.end(), view.strides.begin());
  return view;
}

// Steps without a pattern, so many that no one can tell cheaply whether two elements meet. The
// result must be that of separate memory: every input is read before an output is written.
TEST(Overlaps, WhatCannotBeToldIsMadeSafe) {
  constexpr int64_t kElements = int64_t{16} << 20;
  const DeviceMemory memory(4 * kElements);
  float* const base = floats(memory);
  std::vector<float> before(kElements), after(kElements);
  for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<float>(i % 65536);
  const size_t bytes = sizeof(float) * before.size();
  const Dims dims = {3, 3, 3, 3, 3, 3, 3, 3};
  const uint64_t seed = seed_of_test(31);
  SCOPED_TRACE(replay(seed));
  Random random(seed);
  int undecided = 0;
  for (int i = 0; i < 40 && undecided < 5; ++i) {
    Dims strides[2];
    for (Dims& list : strides) {
      for (size_t d = 0; d < dims.size(); ++d) list.push_back(random.integer(100'000, 900'000));
    }
    const View from = flat_view(dims, strides[0]);
    const View to = flat_view(dims, strides[1]);
    const int64_t offset = random.integer(1, 1000);
    if (views_overlap(to, reinterpret_cast<uintptr_t>(base + offset), from,
                      reinterpret_cast<uintptr_t>(base)) != Overlap::kUndecided ||
        self_overlap(to) == Overlap::kYes) {
      continue;
    }
    ++undecided;
    require(aclrtMemcpy(base, bytes, before.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE), "there");
    const Handle x(dims, strides[0], base);
    const Handle out(dims, strides[1], base, offset);
    expect_accepted({.x = x.get(), .out = out.get()});
    require(aclrtMemcpy(after.data(), bytes, base, bytes, ACL_MEMCPY_DEVICE_TO_HOST), "back");
    for (int64_t k = 0; k < to.numel(); ++k) {
      ASSERT_EQ(*element(to, after.data() + offset, k), 2 * *element(from, before.data(), k));
    }
  }
  EXPECT_EQ(undecided, 5);
}

}  // namespace
}  // namespace aclgrad::test
