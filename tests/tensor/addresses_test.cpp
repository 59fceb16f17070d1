// SPDX-License-Identifier: Apache-2.0
// Addresses: bounds of allocations and storages, the workspace's place; in phase one when they are
// known, in phase two always.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "addresses.h"
#include "runtime/services.h"
#include "scale_add.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

// 100 floats make an allocation of 416 bytes rounded up, and 32 more: 448.
TEST(Bounds, TheAllocationBoundsEveryView) {
  use_device();
  const DeviceMemory memory(400), other(4096);
  const Dims all = {1024};
  const Handle out({112}, {1}, other.get());
  const Handle fits({112}, {1}, memory.get(), 0, all);
  expect_accepted({.x = fits.get(), .out = out.get()});
  const Handle ends_behind({112}, {1}, memory.get(), 1, all);
  expect_refused_in_both({.x = ends_behind.get(), .out = out.get()},
                         {"aclnnScaleAdd: x", "[4, 452)", "448 bytes"});
  const Handle begins_before({112}, {1}, memory.get(), -1, all);
  expect_refused_in_both({.x = begins_before.get(), .out = out.get()},
                         {"aclnnScaleAdd: x", "[-4, 444)", "448 bytes"});
  const Handle backwards({112}, {-1}, memory.get(), 111, all);
  expect_accepted({.x = backwards.get(), .out = out.get()});
  const Handle backwards_out({112}, {-1}, memory.get(), 110, all);
  expect_refused_in_both({.x = backwards_out.get(), .out = out.get()}, {"x", "[-4, 444)"});
  const Handle from_the_middle({112}, {1}, floats(memory) + 50, -50, all);
  expect_accepted({.x = from_the_middle.get(), .out = out.get()});
  const Handle middle_too_far({112}, {1}, floats(memory) + 50, -49, all);
  expect_refused_in_both({.x = middle_too_far.get(), .out = out.get()}, {"x", "[-200, 248)"});
  const Handle strided({8}, {16}, memory.get(), 0, all);
  const Handle out8({8}, {1}, other.get());
  expect_refused_in_both({.x = strided.get(), .out = out8.get()}, {"x", "[0, 452)"});
  const Handle small({8}, {15}, memory.get(), 0, all);
  expect_accepted({.x = small.get(), .out = out8.get()});
  // The same for outputs.
  expect_refused_in_both({.x = out.get(), .out = ends_behind.get()}, {"out", "[4, 452)"});
}

// What storage dims say about memory inside an allocation does not matter.
TEST(Bounds, StorageDimsDoNotBoundAllocations) {
  const DeviceMemory memory(4000), other(4000);
  for (const Dims& storage : {Dims{}, Dims{1}, Dims{10, 10}, Dims{0}, Dims{int64_t{1} << 62}}) {
    const Handle x({10, 10}, {20, 2}, memory.get(), 3, storage);
    const Handle out({10, 10}, {10, 1}, other.get(), 0, storage);
    expect_accepted({.x = x.get(), .out = out.get()});
  }
}

// Memory that the library knows nothing of: the storage dims are all there is.
TEST(Bounds, StorageDimsBoundTheProgramsOwnMemory) {
  use_device();
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "a GPU does not reach it";
  std::vector<float> memory(400), other(100);
  const Handle out({10, 10}, {10, 1}, other.data());
  const auto x = [&](int64_t offset, Dims storage) {
    return std::make_unique<Handle>(Dims{10, 10}, Dims{20, 2}, memory.data(), offset,
                                    std::move(storage));
  };
  // The view reaches elements [offset, offset + 199).
  expect_accepted({.x = x(0, {199})->get(), .out = out.get()});
  expect_accepted({.x = x(0, {2, 100})->get(), .out = out.get()});
  expect_accepted({.x = x(1, {200})->get(), .out = out.get()});
  expect_accepted({.x = x(1, {})->get(), .out = out.get()});        // nothing said
  expect_accepted({.x = x(1, {10, 10})->get(), .out = out.get()});  // the view's dims repeated
  const auto short_storage = x(0, {198});
  expect_refused_in_both({.x = short_storage->get(), .out = out.get()},
                         {"x", "[0, 796)", "792 bytes", "storage dims"});
  const auto before = x(-1, {400});
  expect_refused_in_both({.x = before->get(), .out = out.get()}, {"x", "[-4, 792)"});
}

TEST(Bounds, ViewsFromOwnMemoryIntoTheLibrarysAreRefused) {
  use_device();
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "a GPU takes no memory of the program's own";
  const DeviceMemory memory(4096), other(4096);
  // Element 1 lies in the allocation, the base far before every reserved range.
  auto* const base = reinterpret_cast<float*>(uintptr_t{4096});
  const auto far = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory.get()) - 4096) / 4;
  const Handle x({2}, {far}, base);
  const Handle out({2}, {1}, other.get());
  expect_refused_in_both({.x = x.get(), .out = out.get()}, {"x", "into it"});
}

TEST(Bounds, DeadAndHostAddressesAreRefused) {
  use_device();
  const DeviceMemory other(4096);
  const Handle out({8}, {1}, other.get());
  void* freed = nullptr;
  ASSERT_EQ(aclrtMalloc(&freed, 4096, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream()), 0);
  ASSERT_EQ(aclrtFree(freed), 0);
  const Handle dead({8}, {1}, freed);
  expect_refused_in_both({.x = dead.get(), .out = out.get()}, {"x", "freed"});
  expect_refused_in_both({.x = out.get(), .out = dead.get()}, {"out", "freed"});
  void* host = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, 4096), 0);
  const Handle pinned({8}, {1}, host);
  expect_refused_in_both({.x = pinned.get(), .out = out.get()}, {"x", "pinned host memory"});
  expect_refused_in_both({.x = out.get(), .out = pinned.get()}, {"out", "pinned host memory"});
  ASSERT_EQ(aclrtFreeHost(host), 0);
}

// Phase one saw them alive; what it found does not outlive a change of the allocations.
TEST(Bounds, MemoryFreedBetweenThePhasesIsRefused) {
  const DeviceMemory other(4096);
  const Handle out({8}, {1}, other.get());
  for (int i = 0; i < 3; ++i) {
    void* memory = nullptr;
    ASSERT_EQ(aclrtMalloc(&memory, 4096, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    const Handle x({8}, {1}, memory);
    aclOpExecutor* const repeated = planned({.x = x.get(), .out = out.get()}).executor;
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(repeated), 0);
    EXPECT_EQ(execute(nullptr, 0, repeated, stream()), 0) << take_message();
    aclOpExecutor* const once = planned({.x = x.get(), .out = out.get()}).executor;
    ASSERT_EQ(aclrtFree(memory), 0);
    for (aclOpExecutor* const executor : {once, repeated}) {
      EXPECT_EQ(execute(nullptr, 0, executor, stream()), 161002);
      expect_message(take_message(), {"aclnnScaleAdd: x", "freed"});
    }
    // Other memory, at the same place or not, is judged anew.
    ASSERT_EQ(aclrtMalloc(&memory, 8, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    ASSERT_EQ(aclSetRawTensorAddr(x.get(), static_cast<uint8_t*>(memory) + 48), 0);
    EXPECT_EQ(execute(nullptr, 0, repeated, stream()), 161002);
    expect_message(take_message(), {"aclnnScaleAdd: x", "[-48, 16), the 64 bytes"});
    ASSERT_EQ(aclSetRawTensorAddr(x.get(), memory), 0);
    EXPECT_EQ(execute(nullptr, 0, repeated, stream()), 0) << take_message();
    ASSERT_EQ(aclrtSynchronizeStream(stream()), 0);
    ASSERT_EQ(aclrtFree(memory), 0);
    EXPECT_EQ(aclDestroyAclOpExecutor(repeated), 0);
  }
}

TEST(Bounds, NullAddressesAreRefusedByPhaseTwoOnly) {
  const DeviceMemory other(4096);
  const Handle x({8}, {1}, nullptr), out({8}, {1}, other.get());
  for (const ScaleAdd& call :
       {ScaleAdd{.x = x.get(), .out = out.get()}, ScaleAdd{.x = out.get(), .out = x.get()},
        ScaleAdd{.x = out.get(), .y = x.get(), .out = out.get(), .in_place = true}}) {
    const Planned made = planned(call);
    EXPECT_EQ(execute(nullptr, 0, made.executor, stream()), 161001);
    expect_message(take_message(), {"aclnnScaleAdd: ", "8 elements", "null address"});
    EXPECT_EQ(aclDestroyAclOpExecutor(made.executor), 561000);
  }
}

TEST(Bounds, SizesThatLeaveInt64AreRefused) {
  const DeviceMemory other(4096);
  constexpr int64_t kFar = int64_t{1} << 61;
  const Handle wide({2}, {kFar}, other.get()), negative({2}, {-kFar}, other.get(), -1);
  const Handle out({2}, {1}, other.get(), 100);
  const Handle offset({2}, {1}, other.get(), kFar);
  for (const Handle* x : {&wide, &negative, &offset}) {
    expect_refused(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return plan({.x = x->get(), .out = out.get()}, size, executor);
        },
        161002, {"aclnnScaleAdd: x", "2^63-1 bytes"});
  }
}

TEST(WorkspacePlace, InsideOneLiveAllocationAndApartFromTheTensors) {
  Tensor x({8, 8}, ACL_FLOAT, Arrangement::kTransposed), out({8, 8}, ACL_FLOAT);
  x.fill_integers(3, -9, 9);
  const ScaleAdd call = {.x = x.handle(), .out = out.handle(), .book = 1000};
  const auto run_with = [&](void* workspace) {
    const Planned made = planned(call);
    EXPECT_EQ(made.size, 1024u + 63u);
    const aclnnStatus status = execute(workspace, made.size, made.executor, stream());
    EXPECT_EQ(aclrtSynchronizeStream(stream()), 0);
    EXPECT_EQ(aclDestroyAclOpExecutor(made.executor), 561000);
    return status;
  };
  const DeviceMemory memory(1087);  // with rounding and slack 1120
  EXPECT_EQ(run_with(memory.get()), 0);
  EXPECT_EQ(run_with(static_cast<uint8_t*>(memory.get()) + 33), 0);
  EXPECT_EQ(run_with(static_cast<uint8_t*>(memory.get()) + 34), 161002);
  expect_message(take_message(), {"aclnnScaleAdd: workspace", "1086 bytes", "1087"});

  void* freed = nullptr;
  ASSERT_EQ(aclrtMalloc(&freed, 4096, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  ASSERT_EQ(aclrtFree(freed), 0);
  EXPECT_EQ(run_with(freed), 161002);
  expect_message(take_message(), {"aclnnScaleAdd: workspace", "freed"});
  void* host = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, 4096), 0);
  EXPECT_EQ(run_with(host), 161002);
  expect_message(take_message(), {"aclnnScaleAdd: workspace", "pinned"});
  ASSERT_EQ(aclrtFreeHost(host), 0);
  std::vector<uint8_t> own(1087);
  EXPECT_EQ(run_with(own.data()), aclgrad_has_device_queues() ? 161002 : 0) << take_message();
}

TEST(WorkspacePlace, OverlapWithATensorIsRefused) {
  const DeviceMemory memory(1 << 16), other(1 << 16);
  auto* bytes = static_cast<uint8_t*>(memory.get());
  const Handle apart({8}, {1}, other.get());
  const Handle here({8}, {1}, bytes + 4096);
  for (const ScaleAdd& call : {ScaleAdd{.x = here.get(), .out = apart.get(), .book = 1000},
                               ScaleAdd{.x = apart.get(), .out = here.get(), .book = 1000}}) {
    for (const auto& [place, status] :
         {std::pair{4096 + 32, 0}, std::pair{4096 + 31, 161002}, std::pair{4096 - 1087, 0},
          std::pair{4096 - 1086, 161002}}) {
      const Planned made = planned(call);
      EXPECT_EQ(execute(bytes + place, made.size, made.executor, stream()), status) << place;
      if (status != 0) expect_message(take_message(), {"aclnnScaleAdd: workspace", "overlaps"});
      EXPECT_EQ(aclrtSynchronizeStream(stream()), 0);
    }
  }
}

}  // namespace
}  // namespace aclgrad::test
