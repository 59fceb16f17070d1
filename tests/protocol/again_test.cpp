// SPDX-License-Identifier: Apache-2.0
// Phase one once more with the same arguments, which takes the plan it made before, and with
// arguments that only look the same: a tensor described anew, moved or destroyed, memory that was
// freed, an array that is gone.
#include <array>
#include <memory>

#include "protocol/planned.h"

namespace aclgrad::test {
namespace {

class Again : public EachOperator {};

void run_all(const Planned& planned, const std::vector<uint8_t>& bits) {
  planned.problem.poison_outputs();
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS) << take_message();
  EXPECT_TRUE(planned.problem.result() == bits) << "other results";
  EXPECT_TRUE(planned.problem.guards_intact());
  EXPECT_TRUE(planned.workspace->guards_intact());
}

aclnnStatus describe(const Tensor& tensor, aclFormat format) {
  return aclInitTensor(tensor.handle(), tensor.dims().data(), tensor.dims().size(), tensor.dtype(),
                       tensor.strides().data(), tensor.offset(), format, nullptr, 0,
                       tensor.address());
}

TEST_P(Again, SameResultEveryTime) {
  for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kInnerStrided}) {
    Planned planned(row(), arrangement);
    const uint64_t size = planned.size;
    for (int turn = 0; turn < 4; ++turn) {
      run_all(planned, expected());
      planned.replan();
      EXPECT_EQ(planned.size, size);
    }
    // Of two executors for the same arguments each is its own.
    aclOpExecutor* const first = planned.executor;
    planned.replan();
    EXPECT_NE(planned.executor, first);
    EXPECT_EQ(aclDestroyAclOpExecutor(first), kOk);
    run_all(planned, expected());
    expect_consumed(planned);
  }
}

TEST_P(Again, ManyAtOnce) {
  Planned planned(row());
  run_all(planned, expected());
  std::array<aclOpExecutor*, 100> executors;
  for (aclOpExecutor*& executor : executors) {
    ASSERT_EQ(planned.problem.plan(&planned.size, &executor), kOk) << take_message();
  }
  planned.problem.poison_outputs();
  for (aclOpExecutor* const executor : executors) {
    planned.executor = executor;
    ASSERT_EQ(planned.execute(), kOk) << take_message();
  }
  expect_done(planned, expected());
}

TEST_P(Again, DescribedAnew) {
  Planned planned(row());
  run_all(planned, expected());
  for (size_t i = 0; i < planned.problem.tensors.size(); ++i) {
    const Tensor& tensor = *planned.problem.tensors[i];
    planned.replan();
    EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
    ASSERT_EQ(describe(tensor, ACL_FORMAT_FRACTAL_NZ), kOk) << take_message();
    take_message();
    EXPECT_EQ(planned.problem.plan(&planned.size, &planned.executor), kParamInvalid) << i;
    expect_message(take_message(), {planned.problem.function, "format"});
    ASSERT_EQ(describe(tensor, ACL_FORMAT_ND), kOk) << take_message();
    planned.replan();
    run_all(planned, expected());
  }
}

TEST_P(Again, Destroyed) {
  for (size_t i = 0; i < make_small_problem(row()).tensors.size(); ++i) {
    Planned planned(row());
    run_all(planned, expected());
    const Handles handles = planned.problem.handles();
    planned.problem.tensors[i]->destroy_handle();
    take_message();
    EXPECT_EQ(planned.problem.plan_with(handles, &planned.size, &planned.executor), kParamInvalid);
    expect_message(take_message(),
                   {planned.problem.function, planned.problem.parameters[i].name, "destroyed"});
  }
}

TEST_P(Again, NullOutPointers) {
  Planned planned(row());
  run_all(planned, expected());
  EXPECT_EQ(planned.problem.plan(nullptr, &planned.executor), kParamNullptr);
  expect_message(take_message(), {planned.problem.function, "workspaceSize"});
  EXPECT_EQ(planned.problem.plan(&planned.size, nullptr), kParamNullptr);
  expect_message(take_message(), {planned.problem.function, "executor"});
}

// The tensors of a second problem take the places of the first one's, and go.
TEST_P(Again, OtherAddresses) {
  Planned planned(row());
  run_all(planned, expected());
  {
    const SmallProblem other = make_small_problem(row(), Arrangement::kContiguous, 7);
    for (size_t i = 0; i < other.tensors.size(); ++i) {
      ASSERT_EQ(
          aclSetRawTensorAddr(planned.problem.tensors[i]->handle(), other.tensors[i]->address()),
          kOk);
    }
    planned.replan();
    ASSERT_EQ(planned.execute(), kOk) << take_message();
    ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS);
    EXPECT_TRUE(other.result() == expected(7));
    EXPECT_TRUE(other.guards_intact());
    planned.replan();
    EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
  }
  take_message();
  EXPECT_EQ(planned.problem.plan(&planned.size, &planned.executor), kParamInvalid);
  expect_message(take_message(), {planned.problem.function, "freed"});
  for (const auto& tensor : planned.problem.tensors) {
    ASSERT_EQ(aclSetRawTensorAddr(tensor->handle(), tensor->address()), kOk);
  }
  planned.replan();
  run_all(planned, expected());
}

TEST_P(Again, AllocationsChange) {
  Planned planned(row());
  for (int turn = 0; turn < 4; ++turn) {
    run_all(planned, expected());
    const DeviceMemory other(static_cast<size_t>(1000 * turn + 64));
    planned.replan();
  }
  run_all(planned, expected());
}

// Two tensors moved into each other.
TEST_P(Again, Overlap) {
  Planned planned(row());
  run_all(planned, expected());
  const size_t out = planned.problem.first_output();
  const Tensor& output = *planned.problem.tensors[out];
  const Tensor& input = *planned.problem.tensors[0];
  const size_t shift = output.element_size();
  // Larger ones reach beyond the input's allocation, which is refused first.
  if (output.storage_bytes() + shift > input.storage_bytes()) return;
  void* const inside = static_cast<uint8_t*>(input.address()) + shift;
  ASSERT_EQ(aclSetRawTensorAddr(output.handle(), inside), kOk);
  take_message();
  EXPECT_EQ(planned.problem.plan(&planned.size, &planned.executor), kParamInvalid);
  expect_message(take_message(), {planned.problem.function, "overlaps"});
  ASSERT_EQ(aclSetRawTensorAddr(output.handle(), output.address()), kOk);
  planned.replan();
  run_all(planned, expected());
}

INSTANTIATE_TEST_SUITE_P(Operators, Again, ::testing::Range(size_t{0}, small_problem_count()),
                         row_name);

}  // namespace
}  // namespace aclgrad::test
