// SPDX-License-Identifier: Apache-2.0
// Phase two of every operator: executors, workspace sizes, tensors and threads, in the order of the
// checks.
#include <array>
#include <thread>

#include "protocol/planned.h"

namespace aclgrad::test {
namespace {

class PhaseTwo : public EachOperator {};

TEST_P(PhaseTwo, ComputesTheSameWhateverTheArrangement) {
  for (const Arrangement arrangement : kOutputArrangements) {
    SCOPED_TRACE(arrangement_name(arrangement));
    const Planned planned(row(), arrangement);
    ASSERT_EQ(planned.execute(), kOk) << take_message();
    expect_done(planned, expected());
  }
}

TEST_P(PhaseTwo, NullExecutor) {
  const Planned planned(row());
  take_message();
  for (void* const memory : {static_cast<void*>(nullptr), planned.problem.tensors[0]->address()}) {
    const int status = planned.problem.execute(memory, 64, nullptr, stream());
    expect_refusal(planned, status, kParamNullptr, {"executor", "null"});
  }
  // Also when nothing else is right.
  const int status =
      planned.problem.execute(nullptr, 0, nullptr, static_cast<void*>(planned.executor));
  expect_refusal(planned, status, kParamNullptr, {"executor"});
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  expect_done(planned, expected());
}

TEST_P(PhaseTwo, SizeWithoutWorkspace) {
  for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kInnerStrided}) {
    const Planned planned(row(), arrangement);
    const int status = planned.execute_with(nullptr, planned.size + 64);
    expect_refusal(planned, status, kParamNullptr, {"workspace"});
  }
}

TEST_P(PhaseTwo, ShortWorkspace) {
  Planned planned(row(), Arrangement::kInnerStrided);
  ASSERT_GT(planned.size, 0u) << "strided tensors are packed in the workspace";
  int status = planned.execute_with(planned.workspace->get(), planned.size - 1);
  expect_refusal(planned, status, kParamInvalid,
                 {"workspace", std::to_string(planned.size), std::to_string(planned.size - 1)});
  expect_consumed(planned);
  planned.replan();
  status = planned.execute_with(nullptr, 0);
  expect_refusal(planned, status, kParamInvalid, {"workspace", std::to_string(planned.size)});
  expect_consumed(planned);
}

TEST_P(PhaseTwo, ThePlannedSizeCountsNotTheOneGiven) {
  for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kInnerStrided}) {
    const Planned planned(row(), arrangement);
    const Workspace one(1);
    void* memory = planned.size == 0 ? one.get() : planned.workspace->get();
    ASSERT_EQ(planned.execute_with(memory, planned.size + (uint64_t{1} << 40)), kOk)
        << take_message();
    expect_done(planned, expected());
  }
}

TEST_P(PhaseTwo, AWorkspaceNeedsNoAlignment) {
  const Planned planned(row(), Arrangement::kInnerStrided);
  const DeviceMemory memory(planned.size + 1);
  ASSERT_EQ(planned.execute_with(static_cast<uint8_t*>(memory.get()) + 1, planned.size), kOk)
      << take_message();
  expect_done(planned, expected());
}

TEST_P(PhaseTwo, SpentExecutor) {
  const Planned planned(row());
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  expect_done(planned, expected());
  planned.problem.poison_outputs();
  expect_refusal(planned, planned.execute(), kParamInvalid, {"executor"});
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kInner);
}

TEST_P(PhaseTwo, DestroyedExecutor) {
  const Planned planned(row());
  ASSERT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
  expect_refusal(planned, planned.execute(), kParamInvalid, {"executor"});
}

TEST_P(PhaseTwo, ForeignExecutor) {
  const Planned planned(row());
  int local = 0;
  const IntArray array({1});
  for (void* const pointer :
       {static_cast<void*>(&local), static_cast<void*>(planned.problem.tensors[0]->handle()),
        static_cast<void*>(array.handle()), stream(), planned.problem.tensors[0]->address(),
        reinterpret_cast<void*>(uintptr_t{1}), reinterpret_cast<void*>(~uintptr_t{0})}) {
    take_message();
    const int status = planned.problem.execute(planned.workspace->get(), planned.size,
                                               static_cast<aclOpExecutor*>(pointer), stream());
    expect_refusal(planned, status, kParamInvalid, {"executor"});
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
}

TEST_P(PhaseTwo, ExecutorOfAnotherOperator) {
  for (size_t other = 0; other < small_problem_count(); ++other) {
    if (other == row()) continue;
    const Planned planned(row());
    const SmallProblem wrong = make_small_problem(other);
    take_message();
    const int status =
        wrong.execute(planned.workspace->get(), planned.size, planned.executor, stream());
    const std::string message = take_message();
    EXPECT_EQ(status, kParamInvalid);
    expect_message(message, {wrong.function + ": ", "executor", planned.problem.function});
    EXPECT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS);
    EXPECT_TRUE(planned.problem.outputs_untouched());
    expect_consumed(planned);
  }
}

TEST_P(PhaseTwo, TensorDestroyedBetweenThePhases) {
  const size_t count = make_small_problem(row()).tensors.size();
  for (size_t i = 0; i < count; ++i) {
    const Planned planned(row());
    planned.problem.tensors[i]->destroy_handle();
    const std::string& name = planned.problem.parameters[i].name;
    expect_refusal(planned, planned.execute(), kParamInvalid, {name, "destroyed"});
    expect_consumed(planned);
  }
}

TEST_P(PhaseTwo, AnotherTensorInTheDestroyedOnesPlace) {
  const Planned planned(row());
  Tensor& tensor = *planned.problem.tensors[0];
  tensor.destroy_handle();
  std::array<aclTensor*, 64> others{};  // one of them reuses the slot
  for (aclTensor*& other : others) other = tensor.make_handle();
  expect_refusal(planned, planned.execute(), kParamInvalid, {"destroyed"});
  for (aclTensor* other : others) EXPECT_EQ(aclDestroyTensor(other), kOk);
}

TEST_P(PhaseTwo, EverythingDestroyedRightAfter) {
  for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kInnerStrided}) {
    Planned planned(row(), arrangement);
    OwnStream own;
    Gate gate(own.get());
    ASSERT_EQ(planned.execute(own.get()), kOk) << take_message();
    for (const auto& tensor : planned.problem.tensors) tensor->destroy_handle();
    planned.problem.arrays.clear();
    planned.problem.plan_with = nullptr;  // the last owner of the arrays
    EXPECT_TRUE(planned.problem.outputs_untouched()) << "ran before its turn";
    gate.open();
    ASSERT_EQ(aclrtSynchronizeStream(own.get()), ACL_SUCCESS) << take_message();
    expect_done(planned, expected());
  }
}

TEST_P(PhaseTwo, ArraysDestroyedBetweenThePhases) {
  Planned planned(row());
  planned.problem.arrays.clear();
  planned.problem.plan_with = nullptr;
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  expect_done(planned, expected());
}

TEST_P(PhaseTwo, OnAnotherThread) {
  const Planned planned(row());
  const aclrtStream live = stream();
  int status = kNotReached;
  std::thread([&] { status = planned.execute(live); }).join();  // that thread has set no device
  EXPECT_EQ(status, kOk);
  expect_done(planned, expected());
}

TEST_P(PhaseTwo, PhaseOneOnAThreadThatEnded) {
  std::unique_ptr<Planned> planned;
  std::thread([&] { planned = std::make_unique<Planned>(row()); }).join();
  ASSERT_EQ(planned->execute(), kOk) << take_message();
  expect_done(*planned, expected());
}

TEST_P(PhaseTwo, OneOfTwoThreadsWins) {
  for (int round = 0; round < 20; ++round) {
    const Planned planned(row());
    const aclrtStream live = stream();
    int status[2] = {kNotReached, kNotReached};
    std::thread other([&] { status[0] = planned.execute(live); });
    status[1] = planned.execute(live);
    other.join();
    EXPECT_EQ(status[0] + status[1], kParamInvalid) << status[0] << " " << status[1];
    EXPECT_TRUE(status[0] == kOk || status[1] == kOk);
    expect_done(planned, expected());
  }
}

TEST_P(PhaseTwo, AfterAFailingPhaseOne) {
  const Planned planned(row());
  Handles handles = planned.problem.handles();
  handles[0] = nullptr;
  uint64_t size = 12345;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(planned.problem.plan_with(handles, &size, &executor), kParamNullptr);
  EXPECT_EQ(size, 12345u);
  EXPECT_EQ(executor, nullptr);
  const int status = planned.problem.execute(nullptr, 0, executor, stream());
  expect_refusal(planned, status, kParamNullptr, {"executor"});
}

TEST_P(PhaseTwo, AddressesAreReadInPhaseTwo) {
  const Planned planned(row());
  const SmallProblem other = make_small_problem(row(), Arrangement::kContiguous, 2);
  for (size_t i = 0; i < other.tensors.size(); ++i) {
    ASSERT_EQ(
        aclSetRawTensorAddr(planned.problem.tensors[i]->handle(), other.tensors[i]->address()),
        kOk);
  }
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS) << take_message();
  EXPECT_TRUE(planned.problem.outputs_untouched());
  EXPECT_TRUE(other.result() == expected(2));
}

TEST_P(PhaseTwo, ShapesAreThoseOfPhaseOne) {
  const Planned planned(row());
  for (const auto& tensor : planned.problem.tensors) {
    const int64_t one = 1;  // re-described in place; the address stays
    ASSERT_EQ(aclInitTensor(tensor->handle(), &one, 1, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, &one, 1,
                            tensor->address()),
              kOk);
  }
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  expect_done(planned, expected());
}

TEST_P(PhaseTwo, AddressesMayBeSetLate) {
  const SmallProblem problem = make_small_problem(row());
  for (const auto& tensor : problem.tensors) {
    ASSERT_EQ(aclSetRawTensorAddr(tensor->handle(), nullptr), kOk);
  }
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(problem.plan(&size, &executor), kOk) << take_message();
  for (const auto& tensor : problem.tensors) {
    ASSERT_EQ(aclSetRawTensorAddr(tensor->handle(), tensor->address()), kOk);
  }
  const Workspace workspace(size);
  ASSERT_EQ(problem.execute(workspace.get(), size, executor, stream()), kOk) << take_message();
  ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS) << take_message();
  EXPECT_TRUE(problem.result() == expected());
}

TEST_P(PhaseTwo, NullAddress) {
  const size_t count = make_small_problem(row()).tensors.size();
  for (size_t i = 0; i < count; ++i) {
    const Planned planned(row());
    const Parameter& parameter = planned.problem.parameters[i];
    if (parameter.untouched) continue;
    ASSERT_EQ(aclSetRawTensorAddr(planned.problem.tensors[i]->handle(), nullptr), kOk);
    expect_refusal(planned, planned.execute(), kParamNullptr, {parameter.name});
    expect_consumed(planned);
  }
}

TEST_P(PhaseTwo, DeadAndForeignStream) {
  OwnStream own;
  const aclrtStream dead = own.get();
  ASSERT_EQ(own.destroy(), ACL_SUCCESS);
  int local = 0;
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtCreateEvent(&event), ACL_SUCCESS);
  for (const aclrtStream wrong : {dead, static_cast<aclrtStream>(&local), event}) {
    const Planned planned(row());
    expect_refusal(planned, planned.execute(wrong), kParamInvalid, {"stream"});
    expect_consumed(planned);
  }
  EXPECT_EQ(aclrtDestroyEvent(event), ACL_SUCCESS);
}

TEST_P(PhaseTwo, NullStream) {
  const Planned planned(row());
  ASSERT_EQ(planned.execute(nullptr), kOk) << take_message();
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
  expect_done(planned, expected());
}

TEST_P(PhaseTwo, NullStreamWithoutADevice) {
  const Planned planned(row());
  int status = kNotReached;
  std::string message;
  std::thread([&] {
    status = planned.execute(nullptr);
    message = take_message();
  }).join();
  EXPECT_EQ(status, ACL_ERROR_RT_CONTEXT_NULL);
  expect_message(message, {planned.problem.function});
  EXPECT_TRUE(planned.problem.outputs_untouched());
}

INSTANTIATE_TEST_SUITE_P(All, PhaseTwo, ::testing::Range(size_t{0}, small_problem_count()),
                         row_name);

}  // namespace
}  // namespace aclgrad::test
