// SPDX-License-Identifier: Apache-2.0
// Executors: the order of phase two's refusals, what consumes one, and races for them.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <new>
#include <thread>
#include <vector>

#include "pair.h"
#include "resident.h"
#include "scale_add.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

bool spent(aclOpExecutor* executor) { return aclDestroyAclOpExecutor(executor) == 561000; }

TEST(PhaseTwo, RefusesInTheDocumentedOrder) {
  Pair pair;
  const DeviceMemory memory(4096);
  auto* const no_executor = static_cast<aclOpExecutor*>(nullptr);
  EXPECT_EQ(execute(nullptr, 100, no_executor, stream()), 161001);
  expect_message(take_message(), {"aclnnScaleAdd: executor is null"});
  EXPECT_EQ(execute(nullptr, 0, no_executor, nullptr), 161001);

  Planned made = planned(pair.call(100));
  ASSERT_EQ(made.size, 191u);
  // The executor was not looked at yet.
  EXPECT_EQ(execute(nullptr, 1, made.executor, stream()), 161001);
  expect_message(take_message(), {"aclnnScaleAdd: workspace is null"});
  EXPECT_EQ(execute(memory.get(), made.size, made.executor, stream()), 0) << take_message();
  EXPECT_TRUE(pair.right());

  made = planned(pair.call(100));
  EXPECT_EQ(execute(memory.get(), made.size - 1, made.executor, stream()), 161002);
  expect_message(take_message(), {"aclnnScaleAdd: workspaceSize is 190", "191"});
  EXPECT_TRUE(spent(made.executor));
  made = planned(pair.call(100));
  EXPECT_EQ(execute(nullptr, 0, made.executor, stream()), 161002);
  expect_message(take_message(), {"workspaceSize is 0", "191"});
  EXPECT_TRUE(spent(made.executor));

  // Size before addresses, null addresses before ranges, everything before the stream.
  made = planned(pair.call(100));
  void* const address = pair.x.address();
  aclSetRawTensorAddr(pair.x.handle(), nullptr);
  EXPECT_EQ(execute(nullptr, 0, made.executor, stream()), 161002);
  expect_message(take_message(), {"workspaceSize"});
  aclSetRawTensorAddr(pair.x.handle(), address);

  made = planned(pair.call());
  aclSetRawTensorAddr(pair.x.handle(), static_cast<uint8_t*>(address) + 100000);
  aclSetRawTensorAddr(pair.out.handle(), nullptr);
  EXPECT_EQ(execute(nullptr, 0, made.executor, stream()), 161001);
  expect_message(take_message(), {"out has 16 elements and a null address"});
  aclSetRawTensorAddr(pair.x.handle(), address);
  aclSetRawTensorAddr(pair.out.handle(), pair.out.address());

  int foreign = 0;
  made = planned(pair.call());
  aclSetRawTensorAddr(pair.x.handle(), nullptr);
  EXPECT_EQ(execute(nullptr, 0, made.executor, &foreign), 161001);
  aclSetRawTensorAddr(pair.x.handle(), address);
  made = planned(pair.call());
  EXPECT_EQ(execute(nullptr, 0, made.executor, &foreign), 161002);
  expect_message(take_message(), {"aclnnScaleAdd", "stream"});
  EXPECT_TRUE(spent(made.executor));
}

TEST(PhaseTwo, OneRunConsumesTheExecutor) {
  Pair pair;
  const Planned made = planned(pair.call());
  EXPECT_EQ(execute(nullptr, 0, made.executor, stream()), 0);
  EXPECT_EQ(execute(nullptr, 0, made.executor, stream()), 161002);
  expect_message(take_message(), {"aclnnScaleAdd: executor"});
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(made.executor), 561000);
  expect_message(take_message(), {"aclSetAclOpExecutorRepeatable: executor"});
  EXPECT_EQ(aclDestroyAclOpExecutor(made.executor), 561000);
  EXPECT_TRUE(pair.right());
}

TEST(PhaseTwo, DestroyedAndForeignExecutorsAreRefused) {
  Pair pair;
  const Planned made = planned(pair.call());
  EXPECT_EQ(aclDestroyAclOpExecutor(made.executor), 0);
  EXPECT_EQ(execute(nullptr, 0, made.executor, stream()), 161002);
  int local = 0;
  for (void* foreign :
       {static_cast<void*>(&local), reinterpret_cast<void*>(uintptr_t{1}),
        reinterpret_cast<void*>(~uintptr_t{0}), static_cast<void*>(pair.x.handle())}) {
    auto* const executor = static_cast<aclOpExecutor*>(foreign);
    EXPECT_EQ(execute(nullptr, 0, executor, stream()), 161002);
    expect_message(take_message(), {"aclnnScaleAdd: executor is"});
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 561000);
    EXPECT_EQ(aclSetAclOpExecutorRepeatable(executor), 561000);
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(nullptr), 561103);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(nullptr), 561103);
}

TEST(PhaseTwo, AnotherOperatorsExecutorIsRefusedAndConsumed) {
  Pair pair;
  ScaleAdd call = pair.call();
  call.op = "aclnnOther";
  const Planned made = planned(call);
  EXPECT_EQ(execute(nullptr, 0, made.executor, stream()), 161002);
  expect_message(take_message(), {"aclnnScaleAdd: executor", "aclnnOther"});
  EXPECT_TRUE(spent(made.executor));
}

TEST(PhaseTwo, DestroyedTensorsAreRefusedEvenIfUnusedOrEmpty) {
  const int64_t none[] = {0};
  for (int which = 0; which < 3; ++which) {
    Pair pair;
    Tensor bias({3}, ACL_FLOAT);
    ScaleAdd call = pair.call();
    call.bias = bias.handle();
    aclTensor* empty[2] = {};
    if (which == 2) {
      for (aclTensor*& tensor : empty) {
        tensor =
            aclCreateTensor(none, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
      }
      call = {.x = empty[0], .out = empty[1]};
    }
    const Planned made = planned(call);
    if (which == 0) pair.x.destroy_handle();
    if (which == 1) bias.destroy_handle();
    if (which == 2) aclDestroyTensor(empty[0]);
    EXPECT_EQ(execute(nullptr, 0, made.executor, stream()), 161002);
    expect_message(take_message(), {which == 1 ? "biasOptional was destroyed" : "x was destroyed"});
    EXPECT_TRUE(spent(made.executor));
    if (which == 2) aclDestroyTensor(empty[1]);
  }
}

TEST(PhaseTwo, ReadsTheAddressesTensorsHaveNow) {
  Pair pair;
  Tensor other({16}, ACL_FLOAT);
  other.fill_integers(2, -99, 99);
  const Planned made = planned(pair.call());
  ASSERT_EQ(aclSetRawTensorAddr(pair.x.handle(), other.address()), 0);
  EXPECT_EQ(execute(nullptr, 0, made.executor, stream()), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream()), 0);
  EXPECT_EQ(pair.out.values(), scaled(other.values(), {}));
}

// Shapes are those of phase one.
TEST(PhaseTwo, DescribingATensorAnewChangesItsAddressOnly) {
  Pair pair;
  const Planned made = planned(pair.call());
  const int64_t dims[] = {1, 1, 1};
  ASSERT_EQ(aclInitTensor(pair.x.handle(), dims, 3, ACL_INT64, nullptr, 7, ACL_FORMAT_NCHW, dims, 3,
                          pair.x.address()),
            0);
  EXPECT_EQ(execute(nullptr, 0, made.executor, stream()), 0) << take_message();
  EXPECT_TRUE(pair.right());
}

TEST(PhaseOne, FailureLeavesTheOutputsUntouched) {
  Pair pair;
  Tensor ints({16}, ACL_INT32);
  ScaleAdd call = pair.call();
  call.x = ints.handle();
  expect_refused(
      [&](uint64_t* size, aclOpExecutor** executor) { return plan(call, size, executor); }, 161002,
      {"aclnnScaleAdd: x has dtype INT32", "FLOAT"});
  uint64_t size = 5;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(plan(pair.call(), nullptr, &executor), 161001);
  expect_message(take_message(), {"workspaceSize is null"});
  EXPECT_EQ(executor, nullptr);
  EXPECT_EQ(plan(pair.call(), &size, nullptr), 161001);
  expect_message(take_message(), {"executor is null"});
  EXPECT_EQ(size, 5u);
  call.x = nullptr;
  EXPECT_EQ(plan(call, &size, &executor), 161001);
}

TEST(PhaseOne, HugeWorkspacesAreRefused) {
  Pair pair;
  expect_refused(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return plan(pair.call(INT64_MAX - 100), size, executor);
      },
      161002, {"aclnnScaleAdd: the workspace"});
}

TEST(PhaseOne, OutOfMemoryIsACodeOfItsOwn) {
  const auto throwing = [](Launch&) -> Status { throw std::bad_alloc(); };
  uint64_t size = 5;
  auto* executor = reinterpret_cast<aclOpExecutor*>(&size);
  EXPECT_EQ(plan_phase("aclnnScaleAdd", &size, &executor, throwing), 561101);
  expect_message(take_message(), {"aclnnScaleAdd: out of memory"});
  EXPECT_EQ(size, 5u);
}

TEST(Executors, AMillionLeaveNothingBehind) {
  Pair pair;
  aclOpExecutor* const first = planned(pair.call()).executor;
  EXPECT_EQ(aclDestroyAclOpExecutor(first), 0);
  int64_t before = 0;
  for (int i = 0; i < 1000 + kPairs; ++i) {
    if (i == 1000) before = resident_bytes();
    const Planned made = planned(pair.call());
    const aclnnStatus status = i % 2 == 0 ? aclDestroyAclOpExecutor(made.executor)
                                          : execute(nullptr, 0, made.executor, stream());
    if (status != 0) FAIL() << status;
    if (i % 100 == 0) require(aclrtSynchronizeStream(stream()), "aclrtSynchronizeStream");
  }
  ASSERT_EQ(aclrtSynchronizeStream(stream()), 0);
  EXPECT_LT(resident_bytes() - before, kFlat);
  EXPECT_EQ(aclDestroyAclOpExecutor(first), 561000);
  EXPECT_EQ(execute(nullptr, 0, first, stream()), 161002);
}

TEST(Races, OneOfTwoThreadsRunsAOneShotExecutor) {
  use_device();
  const aclrtStream on = stream();
  Pair pair;
  for (int i = 0; i < 500; ++i) {
    aclOpExecutor* const executor = planned(pair.call()).executor;
    std::atomic<int> ready{0};
    std::array<aclnnStatus, 2> status{};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        ++ready;
        while (ready.load() < 2) {
        }
        status[t] = execute(nullptr, 0, executor, on);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE((status[0] == 0 && status[1] == 161002) || (status[0] == 161002 && status[1] == 0))
        << status[0] << ' ' << status[1];
  }
  EXPECT_TRUE(pair.right());
}

TEST(Races, RunDestroyAndMakeRepeatableAtOnce) {
  use_device();
  const aclrtStream on = stream();
  Pair pair;
  for (int i = 0; i < 500; ++i) {
    aclOpExecutor* const executor = planned(pair.call()).executor;
    std::atomic<int> ready{0};
    std::array<aclnnStatus, 3> status{};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        ++ready;
        while (ready.load() < 3) {
        }
        if (t == 0) status[t] = execute(nullptr, 0, executor, on);
        if (t == 1) status[t] = aclDestroyAclOpExecutor(executor);
        if (t == 2) status[t] = aclSetAclOpExecutorRepeatable(executor);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(status[0] == 0 || status[0] == 161002) << status[0];
    EXPECT_TRUE(status[1] == 0 || status[1] == 561000) << status[1];
    EXPECT_TRUE(status[2] == 0 || status[2] == 561000) << status[2];
    // A one-shot executor has one end; only a repeatable one is run and destroyed.
    EXPECT_TRUE(status[2] == 0 || (status[0] == 0) != (status[1] == 0));
    static_cast<void>(aclDestroyAclOpExecutor(executor));
    EXPECT_EQ(execute(nullptr, 0, executor, on), 161002);
  }
  EXPECT_EQ(aclrtSynchronizeStream(on), 0);
}

}  // namespace
}  // namespace aclgrad::test
