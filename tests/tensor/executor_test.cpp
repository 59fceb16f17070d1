// SPDX-License-Identifier: Apache-2.0
// Executors: the order of phase two's refusals, what consumes one, repeatable ones and the refresh
// of their addresses, and races for them.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "resident.h"
#include "scale_add.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

struct Pair {
  Pair() : x({16}, ACL_FLOAT), out({16}, ACL_FLOAT) { x.fill_integers(1, -99, 99); }
  ScaleAdd call(int64_t book = 0) const {
    return {.x = x.handle(), .out = out.handle(), .book = book};
  }
  bool right() const {
    require(aclrtSynchronizeStream(stream()), "aclrtSynchronizeStream");
    return out.values() == scaled(x.values(), {});
  }
  Tensor x, out;
};

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

TEST(Repeatable, RunsAnyNumberOfTimesAndSurvivesRefusals) {
  Pair pair;
  const Planned made = planned(pair.call(100));
  const DeviceMemory memory(made.size);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(made.executor), 0);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(made.executor), 0);
  for (int i = 0; i < 10; ++i) {
    pair.out.poison();
    ASSERT_EQ(execute(memory.get(), made.size, made.executor, stream()), 0) << take_message();
    EXPECT_TRUE(pair.right());
    EXPECT_EQ(execute(memory.get(), made.size - 1, made.executor, stream()), 161002);
    EXPECT_EQ(run_phase("aclnnOther", memory.get(), made.size, made.executor, stream()), 161002);
    EXPECT_EQ(execute(memory.get(), made.size, made.executor, made.executor), 161002);
  }
  // Queued many times at once.
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(execute(memory.get(), made.size, made.executor, stream()), 0);
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(made.executor), 0);
  EXPECT_TRUE(pair.right());
  EXPECT_EQ(aclDestroyAclOpExecutor(made.executor), 561000);
  EXPECT_EQ(execute(memory.get(), made.size, made.executor, stream()), 161002);
}

TEST(Repeatable, MayBeDestroyedAfterItsTensorsAndRefusesWhenTheyAreGone) {
  aclOpExecutor* executor = nullptr;
  {
    Pair pair;
    executor = planned(pair.call()).executor;
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
    ASSERT_EQ(execute(nullptr, 0, executor, stream()), 0);
    EXPECT_TRUE(pair.right());
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(execute(nullptr, 0, executor, stream()), 161002);
    expect_message(take_message(), {"x was destroyed"});
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
}

using SetAddress = aclnnStatus (*)(aclOpExecutor*, size_t, aclTensor*, void*);

TEST(Repeatable, AddressesAreRefreshedByPosition) {
  Pair pair;
  Tensor copy_out({16}, ACL_FLOAT);
  ScaleAdd call = pair.call();
  call.copy_out = copy_out.handle();
  aclOpExecutor* const executor = planned(call).executor;
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
  // Inputs: x 0, yOptional 1, biasOptional 2; outputs: out 0, copyOutOptional 1; together out is 3.
  const struct {
    SetAddress inputs, outputs, all;
  } functions[] = {{aclSetInputTensorAddr, aclSetOutputTensorAddr, aclSetTensorAddr},
                   {AclSetInputTensorAddr, AclSetOutputTensorAddr, AclSetTensorAddr}};
  for (const auto& set : functions) {
    for (const bool together : {false, true}) {
      Tensor new_x({16}, ACL_FLOAT), new_out({16}, ACL_FLOAT), new_copy({16}, ACL_FLOAT);
      new_x.fill_integers(together ? 3 : 4, -99, 99);
      const SetAddress outputs = together ? set.all : set.outputs;
      const size_t first = together ? 3 : 0;
      EXPECT_EQ((together ? set.all : set.inputs)(executor, 0, pair.x.handle(), new_x.address()),
                0);
      EXPECT_EQ(outputs(executor, first, pair.out.handle(), new_out.address()), 0);
      EXPECT_EQ(outputs(executor, first + 1, copy_out.handle(), new_copy.address()), 0);
      void* address = nullptr;
      EXPECT_EQ(aclGetRawTensorAddr(pair.x.handle(), &address), 0);
      EXPECT_EQ(address, new_x.address()) << "the tensor has the address too";
      ASSERT_EQ(execute(nullptr, 0, executor, stream()), 0) << take_message();
      ASSERT_EQ(aclrtSynchronizeStream(stream()), 0);
      EXPECT_EQ(new_out.values(), scaled(new_x.values(), {}));
      EXPECT_EQ(new_copy.values(), new_x.values());
    }
  }
  // The refreshed addresses are gone, and every run checks.
  EXPECT_EQ(execute(nullptr, 0, executor, stream()), 161002);
  EXPECT_EQ(aclSetInputTensorAddr(executor, 0, pair.x.handle(), nullptr), 0);
  EXPECT_EQ(execute(nullptr, 0, executor, stream()), 161001);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
}

TEST(Repeatable, WrongPositionsAndTensorsAreRefused) {
  Pair pair;
  aclOpExecutor* const executor = planned(pair.call()).executor;
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
  void* const address = pair.x.address();
  const auto refused = [&](SetAddress set, size_t index, const Tensor& tensor) {
    take_message();
    EXPECT_EQ(set(executor, index, tensor.handle(), address), 161002);
    return take_message();
  };
  expect_message(refused(aclSetInputTensorAddr, 3, pair.x), {"index is 3", "less than 3"});
  expect_message(refused(aclSetOutputTensorAddr, 2, pair.out), {"index is 2", "less than 2"});
  expect_message(refused(aclSetTensorAddr, 5, pair.x), {"index is 5", "less than 5"});
  expect_message(refused(aclSetTensorAddr, SIZE_MAX, pair.x), {"index is 18446744073709551615"});
  expect_message(refused(aclSetInputTensorAddr, 0, pair.out), {"tensor is not the one", "x"});
  expect_message(refused(aclSetInputTensorAddr, 1, pair.x), {"yOptional", "absent"});
  expect_message(refused(aclSetOutputTensorAddr, 0, pair.x), {"tensor is not the one", "out"});
  void* kept = nullptr;
  EXPECT_EQ(aclGetRawTensorAddr(pair.out.handle(), &kept), 0);
  EXPECT_EQ(kept, pair.out.address()) << "a refusal changes nothing";
  EXPECT_EQ(execute(nullptr, 0, executor, stream()), 0);
  EXPECT_TRUE(pair.right());

  // No operator here takes a list of tensors.
  const aclTensor* member = pair.x.handle();
  aclTensorList* list = aclCreateTensorList(&member, 1);
  EXPECT_EQ(aclSetDynamicInputTensorAddr(executor, 0, 0, list, address), 161002);
  expect_message(take_message(), {"aclSetDynamicInputTensorAddr: irIndex is 0", "list"});
  EXPECT_EQ(aclSetDynamicOutputTensorAddr(executor, 2, 0, list, address), 161002);
  EXPECT_EQ(aclSetDynamicTensorAddr(executor, 0, 1, list, address), 161002);
  expect_message(take_message(), {"relativeIndex is 1"});
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
  EXPECT_EQ(aclDestroyTensorList(list), 0);
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
