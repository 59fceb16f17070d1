// SPDX-License-Identifier: Apache-2.0
// What phase one of every operator refuses for every tensor parameter. Shapes and dtypes are tested
// with each operator.
#include "protocol/planned.h"

namespace aclgrad::test {
namespace {

class PhaseOne : public EachOperator {};

// Phase one with one handle replaced.
void expect_refused_with(const SmallProblem& problem, size_t parameter, const aclTensor* handle,
                         int status, std::initializer_list<std::string> more = {}) {
  Handles handles = problem.handles();
  handles[parameter] = handle;
  const std::string& name = problem.parameters[parameter].name;
  SCOPED_TRACE(problem.function + " " + name);
  const auto plan = [&](uint64_t* size, aclOpExecutor** executor) {
    return problem.plan_with(handles, size, executor);
  };
  expect_refused(plan, status, {problem.function + ": ", name});
  expect_refused(plan, status, more);
}

TEST_P(PhaseOne, Null) {
  const SmallProblem problem = make_small_problem(row());
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    if (problem.parameters[i].optional) continue;
    expect_refused_with(problem, i, nullptr, kParamNullptr, {"null"});
  }
}

TEST_P(PhaseOne, NullOutPointers) {
  const SmallProblem problem = make_small_problem(row());
  uint64_t size = 7;
  aclOpExecutor* executor = nullptr;
  take_message();
  EXPECT_EQ(problem.plan(nullptr, &executor), kParamNullptr);
  expect_message(take_message(), {problem.function + ": ", "workspaceSize"});
  EXPECT_EQ(executor, nullptr);
  EXPECT_EQ(problem.plan(&size, nullptr), kParamNullptr);
  expect_message(take_message(), {problem.function + ": ", "executor"});
  EXPECT_EQ(size, 7u);
}

TEST_P(PhaseOne, DestroyedForeignAndWrongKind) {
  const SmallProblem problem = make_small_problem(row());
  const aclTensor* destroyed = problem.tensors[0]->make_handle();
  ASSERT_EQ(aclDestroyTensor(destroyed), kOk);
  const IntArray array({1, 2});
  const int local = 0;
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    expect_refused_with(problem, i, destroyed, kParamInvalid, {"destroyed"});
    expect_refused_with(problem, i, reinterpret_cast<const aclTensor*>(&local), kParamInvalid);
    expect_refused_with(problem, i, reinterpret_cast<const aclTensor*>(array.handle()),
                        kParamInvalid, {"aclIntArray"});
  }
}

TEST_P(PhaseOne, NullComesBeforeEverythingElse) {
  const SmallProblem problem = make_small_problem(row());
  const int local = 0;
  Handles handles = problem.handles();
  for (const aclTensor*& handle : handles) handle = reinterpret_cast<const aclTensor*>(&local);
  // The last input that is required: null outputs of LayerNormBackward are judged by its mask,
  // later.
  size_t last = problem.first_output() - 1;
  while (problem.parameters[last].optional) --last;
  handles[last] = nullptr;
  const auto plan = [&](uint64_t* size, aclOpExecutor** executor) {
    return problem.plan_with(handles, size, executor);
  };
  expect_refused(plan, kParamNullptr, {problem.parameters[last].name});
}

TEST_P(PhaseOne, PrivateFormatsAreRefusedAndBaseFormatsAreNot) {
  const SmallProblem problem = make_small_problem(row());
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    if (problem.parameters[i].untouched) continue;
    for (const int format : {3, 4, 12, 29, 32, 33, 50, 51, 52, 53, 54, 5, 1000, -2}) {
      aclTensor* handle = problem.tensors[i]->make_handle(static_cast<aclFormat>(format));
      expect_refused_with(problem, i, handle, kParamInvalid, {"format"});
      aclDestroyTensor(handle);
    }
    for (const aclFormat format :
         {ACL_FORMAT_UNDEFINED, ACL_FORMAT_NCHW, ACL_FORMAT_NHWC, ACL_FORMAT_ND, ACL_FORMAT_HWCN,
          ACL_FORMAT_NDHWC, ACL_FORMAT_NCDHW, ACL_FORMAT_NC, ACL_FORMAT_NCL}) {
      Handles handles = problem.handles();
      aclTensor* handle = problem.tensors[i]->make_handle(format);
      handles[i] = handle;
      uint64_t size = 0;
      aclOpExecutor* executor = nullptr;
      EXPECT_EQ(problem.plan_with(handles, &size, &executor), kOk) << take_message();
      EXPECT_EQ(aclDestroyAclOpExecutor(executor), kOk);
      aclDestroyTensor(handle);
    }
  }
}

TEST_P(PhaseOne, DtypesThatNoOperatorTakes) {
  const SmallProblem problem = make_small_problem(row());
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    for (const int dtype : {-1, 13, 16, 17, 29, 33, 34, 41, 99}) {
      const Dims& dims = problem.tensors[i]->dims();
      aclTensor* handle =
          aclCreateTensor(dims.data(), dims.size(), static_cast<aclDataType>(dtype), nullptr, 0,
                          ACL_FORMAT_ND, nullptr, 0, problem.tensors[i]->address());
      ASSERT_NE(handle, nullptr);
      expect_refused_with(problem, i, handle, kParamInvalid, {"dtype"});
      aclDestroyTensor(handle);
    }
  }
}

TEST_P(PhaseOne, RankNineAndNegativeDims) {
  const SmallProblem problem = make_small_problem(row());
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    if (problem.parameters[i].untouched) continue;
    const Tensor& tensor = *problem.tensors[i];
    const Dims nine(9, 1);
    aclTensor* handle = aclCreateTensor(nine.data(), 9, tensor.dtype(), nullptr, 0, ACL_FORMAT_ND,
                                        nullptr, 0, tensor.address());
    expect_refused_with(problem, i, handle, kParamInvalid);
    aclDestroyTensor(handle);
    Dims negative = tensor.dims();
    negative[0] = -negative[0];
    handle = aclCreateTensor(negative.data(), negative.size(), tensor.dtype(), nullptr, 0,
                             ACL_FORMAT_ND, nullptr, 0, tensor.address());
    expect_refused_with(problem, i, handle, kParamInvalid, {"-"});
    aclDestroyTensor(handle);
  }
}

TEST_P(PhaseOne, OutputsThatOverlapThemselves) {
  const SmallProblem problem = make_small_problem(row());
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    if (!problem.parameters[i].output) continue;
    const Tensor& tensor = *problem.tensors[i];
    Dims strides = tensor.strides();
    strides[0] = 0;
    const Tensor repeated(tensor.dims(), tensor.dtype(), strides);
    expect_refused_with(problem, i, repeated.handle(), kParamInvalid);
    EXPECT_TRUE(repeated.untouched());
  }
}

TEST_P(PhaseOne, AnUnusedExecutorIsDestroyed) {
  const Planned planned(row());
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
  expect_consumed(planned);
}

INSTANTIATE_TEST_SUITE_P(All, PhaseOne, ::testing::Range(size_t{0}, small_problem_count()),
                         row_name);

}  // namespace
}  // namespace aclgrad::test
