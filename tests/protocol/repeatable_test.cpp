// SPDX-License-Identifier: Apache-2.0
// Repeatable executors: any number of runs, addresses set anew between them, and the end of
// executors of both kinds.
#include "protocol/planned.h"

namespace aclgrad::test {
namespace {

class Repeatable : public EachOperator {
 protected:
  void make_repeatable(const Planned& planned) {
    ASSERT_EQ(aclSetAclOpExecutorRepeatable(planned.executor), kOk) << take_message();
  }
};

using SetAddress = aclnnStatus (*)(aclOpExecutor*, const size_t, aclTensor*, void*);

// Points the executor at another problem's memory, with either set of functions.
void refresh(const Planned& planned, const SmallProblem& target, SetAddress set_input,
             SetAddress set_output) {
  const size_t first_output = planned.problem.first_output();
  for (size_t i = 0; i < target.tensors.size(); ++i) {
    const bool output = planned.problem.parameters[i].output;
    aclTensor* handle = planned.problem.tensors[i]->handle();
    void* address = target.tensors[i]->address();
    const SetAddress set = output ? set_output : set_input;
    const size_t index = output ? i - first_output : i;
    ASSERT_EQ(set(planned.executor, index, handle, address), kOk) << i << ": " << take_message();
    void* now = nullptr;
    ASSERT_EQ(aclGetRawTensorAddr(handle, &now), kOk);
    EXPECT_EQ(now, address) << "the address is also written into the tensor";
  }
}

TEST_P(Repeatable, ManyRunsWithNewAddresses) {
  for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kInnerStrided}) {
    const Planned planned(row(), arrangement);
    make_repeatable(planned);
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      const SmallProblem target = make_small_problem(row(), arrangement, seed);
      if (seed % 2 == 0) {
        refresh(planned, target, aclSetInputTensorAddr, aclSetOutputTensorAddr);
      } else {
        refresh(planned, target, AclSetInputTensorAddr, AclSetOutputTensorAddr);
      }
      ASSERT_EQ(planned.execute(), kOk) << take_message();
      ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS) << take_message();
      EXPECT_TRUE(target.result() == expected(seed)) << seed;
      EXPECT_TRUE(target.guards_intact());
    }
    EXPECT_TRUE(planned.problem.outputs_untouched());
    EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
    expect_consumed(planned);
  }
}

TEST_P(Repeatable, InputsAndOutputsCountedTogether) {
  const Planned planned(row());
  make_repeatable(planned);
  for (const SetAddress set : {aclSetTensorAddr, AclSetTensorAddr}) {
    const SmallProblem target = make_small_problem(row(), Arrangement::kContiguous, 5);
    for (size_t i = 0; i < target.tensors.size(); ++i) {
      ASSERT_EQ(set(planned.executor, i, planned.problem.tensors[i]->handle(),
                    target.tensors[i]->address()),
                kOk)
          << take_message();
    }
    ASSERT_EQ(planned.execute(), kOk) << take_message();
    ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS);
    EXPECT_TRUE(target.result() == expected(5));
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
}

TEST_P(Repeatable, RunsThatFollowWithoutAWait) {
  const Planned planned(row());
  make_repeatable(planned);
  OwnStream own;
  Gate gate(own.get());
  std::vector<SmallProblem> targets;
  for (uint64_t seed = 1; seed <= 5; ++seed) {  // each run captures the addresses of its time
    targets.push_back(make_small_problem(row(), Arrangement::kContiguous, seed));
    refresh(planned, targets.back(), aclSetInputTensorAddr, aclSetOutputTensorAddr);
    ASSERT_EQ(planned.execute(own.get()), kOk) << take_message();
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
  gate.open();
  ASSERT_EQ(aclrtSynchronizeStream(own.get()), ACL_SUCCESS) << take_message();
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    EXPECT_TRUE(targets[seed - 1].result() == expected(seed)) << seed;
  }
}

TEST_P(Repeatable, RefusalsDoNotConsume) {
  const Planned planned(row(), Arrangement::kInnerStrided);
  make_repeatable(planned);
  ASSERT_GT(planned.size, 0u);
  int status = planned.execute_with(planned.workspace->get(), planned.size - 1);
  expect_refusal(planned, status, kParamInvalid, {"workspace"});
  status = planned.execute_with(nullptr, planned.size);
  expect_refusal(planned, status, kParamNullptr, {"workspace"});
  const size_t output = planned.problem.first_output();
  aclTensor* handle = planned.problem.tensors[output]->handle();
  ASSERT_EQ(aclSetRawTensorAddr(handle, nullptr), kOk);
  expect_refusal(planned, planned.execute(), kParamNullptr,
                 {planned.problem.parameters[output].name});
  ASSERT_EQ(aclSetRawTensorAddr(handle, planned.problem.tensors[output]->address()), kOk);
  int local = 0;
  expect_refusal(planned, planned.execute(&local), kParamInvalid, {"stream"});
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  expect_done(planned, expected());
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
}

TEST_P(Repeatable, TensorDestroyedBetweenRuns) {
  const Planned planned(row());
  make_repeatable(planned);
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  expect_done(planned, expected());
  planned.problem.poison_outputs();
  planned.problem.tensors[0]->destroy_handle();
  expect_refusal(planned, planned.execute(), kParamInvalid, {"destroyed"});
  for (const auto& tensor : planned.problem.tensors) tensor->destroy_handle();
  expect_refusal(planned, planned.execute(), kParamInvalid, {"destroyed"});
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk) << "after the tensors are gone";
}

TEST_P(Repeatable, AddressesOfWhatIsNotThere) {
  const Planned planned(row());
  make_repeatable(planned);
  aclOpExecutor* executor = planned.executor;
  const SmallProblem& problem = planned.problem;
  const size_t count = problem.tensors.size();
  const size_t outputs = count - problem.first_output();
  aclTensor* input = problem.tensors[0]->handle();
  aclTensor* output = problem.tensors.back()->handle();
  void* address = problem.tensors[0]->address();
  take_message();
  const auto refused = [&](aclnnStatus status, int expected_status) {
    EXPECT_EQ(status, expected_status);
    EXPECT_NE(take_message(), "");
  };
  refused(aclSetInputTensorAddr(executor, count - outputs, input, address), kParamInvalid);
  refused(aclSetInputTensorAddr(executor, ~size_t{0}, input, address), kParamInvalid);
  refused(aclSetOutputTensorAddr(executor, outputs, output, address), kParamInvalid);
  refused(aclSetTensorAddr(executor, count, output, address), kParamInvalid);
  refused(aclSetInputTensorAddr(executor, 0, output, address), kParamInvalid);
  refused(aclSetOutputTensorAddr(executor, outputs - 1, input, address), kParamInvalid);
  refused(aclSetInputTensorAddr(executor, 1, input, address), kParamInvalid);
  refused(aclSetInputTensorAddr(executor, 0, nullptr, address), kInnerNullptr);
  refused(aclSetInputTensorAddr(nullptr, 0, input, address), kInnerNullptr);
  refused(aclSetInputTensorAddr(reinterpret_cast<aclOpExecutor*>(input), 0, input, address),
          kParamInvalid);
  refused(aclSetDynamicInputTensorAddr(executor, 0, 0, reinterpret_cast<aclTensorList*>(input),
                                       address),
          kParamInvalid);
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  expect_done(planned, expected());
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), kOk);
  refused(aclSetInputTensorAddr(executor, 0, input, address), kParamInvalid);
}

// A refused phase two is no run.
TEST_P(Repeatable, MadeRepeatableAgainAfterARefusal) {
  const Planned planned(row(), Arrangement::kInnerStrided);
  make_repeatable(planned);
  EXPECT_EQ(planned.execute_with(nullptr, planned.size), kParamNullptr);
  EXPECT_EQ(planned.execute_with(planned.workspace->get(), planned.size - 1), kParamInvalid);
  make_repeatable(planned);
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
}

// The one run of an executor that is not repeatable takes new addresses too; behind it there is
// nothing to set them for.
TEST_P(Repeatable, NewAddressesOfAnExecutorThatIsNot) {
  const Planned planned(row());
  const SmallProblem target = make_small_problem(row(), Arrangement::kContiguous, 5);
  refresh(planned, target, aclSetInputTensorAddr, aclSetOutputTensorAddr);
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS) << take_message();
  EXPECT_TRUE(target.result() == expected(5));
  EXPECT_TRUE(planned.problem.outputs_untouched());
  aclTensor* const input = planned.problem.tensors[0]->handle();
  for (const SetAddress set : {aclSetInputTensorAddr, aclSetTensorAddr}) {
    EXPECT_EQ(set(planned.executor, 0, input, planned.problem.tensors[0]->address()),
              kParamInvalid);
    expect_message(take_message(), {"executor"});
  }
  void* now = nullptr;
  ASSERT_EQ(aclGetRawTensorAddr(input, &now), kOk);
  EXPECT_EQ(now, target.tensors[0]->address()) << "a refused call wrote";
}

TEST_P(Repeatable, TheEndOfExecutors) {
  Planned planned(row());
  int local = 0;
  auto* foreign = reinterpret_cast<aclOpExecutor*>(&local);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(nullptr), kInnerNullptr);
  EXPECT_EQ(aclDestroyAclOpExecutor(nullptr), kInnerNullptr);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(foreign), kInner);
  EXPECT_EQ(aclDestroyAclOpExecutor(foreign), kInner);
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(planned.executor), kInner) << "after a run";
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kInner) << "after a run";
  expect_done(planned, expected());
  planned.replan();
  make_repeatable(planned);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(planned.executor), kOk) << "twice changes nothing";
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  take_message();
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(planned.executor), kInner) << "after a run";
  expect_message(take_message(), {"aclSetAclOpExecutorRepeatable: executor was run already"});
  ASSERT_EQ(planned.execute(), kOk) << "it still is repeatable: " << take_message();
  expect_done(planned, expected());
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kInner);
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(planned.executor), kInner);
}

INSTANTIATE_TEST_SUITE_P(All, Repeatable, ::testing::Range(size_t{0}, small_problem_count()),
                         row_name);

}  // namespace
}  // namespace aclgrad::test
