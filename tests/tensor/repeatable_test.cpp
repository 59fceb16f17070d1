// SPDX-License-Identifier: Apache-2.0
// Executors that are run again: any number of times, also after a refusal, and with addresses that
// are refreshed by position.
#include <gtest/gtest.h>

#include "pair.h"
#include "scale_add.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

using SetAddress = aclnnStatus (*)(aclOpExecutor*, size_t, aclTensor*, void*);

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

}  // namespace
}  // namespace aclgrad::test
