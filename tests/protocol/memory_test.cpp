// SPDX-License-Identifier: Apache-2.0
// Addresses: allocations and their bounds, memory that is dead, pinned or unknown, workspaces that
// overlap, and memory freed while work waits for it.
#include "protocol/planned.h"
#include "runtime/services.h"

namespace aclgrad::test {
namespace {

class Memory : public EachOperator {
 protected:
  // The bytes a tensor of `problem` spans from its storage's base.
  static size_t bytes_of(const Tensor& tensor) {
    return static_cast<size_t>(tensor.numel()) * tensor.element_size();
  }
  static bool touched(const Planned& planned, size_t i) {
    return !planned.problem.parameters[i].untouched;
  }
};

TEST_P(Memory, WorkspaceThatOverlapsATensor) {
  const size_t count = make_small_problem(row()).tensors.size();
  for (size_t i = 0; i < count; ++i) {
    Planned planned(row(), Arrangement::kInnerStrided);
    if (!touched(planned, i)) continue;
    const Tensor& tensor = *planned.problem.tensors[i];
    const size_t extent = tensor.storage_bytes();
    const DeviceMemory block(extent + planned.size + 64);
    ASSERT_EQ(aclSetRawTensorAddr(tensor.handle(), block.get()), kOk);
    // The last element of the tensor is inside; everything lies in one allocation.
    auto* bytes = static_cast<uint8_t*>(block.get());
    const int status = planned.execute_with(bytes + extent - tensor.element_size(), planned.size);
    expect_refusal(planned, status, kParamInvalid,
                   {"workspace", planned.problem.parameters[i].name, "overlap"});
  }
}

TEST_P(Memory, WorkspaceRightBehindATensor) {
  const Planned planned(row(), Arrangement::kInnerStrided);
  const Tensor& tensor = *planned.problem.tensors[0];
  const size_t extent = tensor.storage_bytes();
  const DeviceMemory block(extent + planned.size);
  require(aclrtMemcpy(block.get(), extent, tensor.address(), extent, ACL_MEMCPY_DEVICE_TO_DEVICE),
          "aclrtMemcpy");
  ASSERT_EQ(aclSetRawTensorAddr(tensor.handle(), block.get()), kOk);
  ASSERT_EQ(planned.execute_with(static_cast<uint8_t*>(block.get()) + extent, planned.size), kOk)
      << take_message();
  expect_done(planned, expected());
}

TEST_P(Memory, WorkspaceAllocationThatIsTooSmall) {
  const Planned planned(row(), Arrangement::kInnerStrided);
  ASSERT_GT(planned.size, 96u);
  const DeviceMemory small(planned.size - 96);  // rounded up to 32, and 32 of slack
  const int status = planned.execute_with(small.get(), planned.size);
  expect_refusal(planned, status, kParamInvalid, {"workspace", std::to_string(planned.size)});
}

TEST_P(Memory, WorkspaceThatIsDeadOrPinned) {
  Planned planned(row(), Arrangement::kInnerStrided);
  void* dead = nullptr;
  require(aclrtMalloc(&dead, planned.size, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  require(aclrtFree(dead), "aclrtFree");
  expect_refusal(planned, planned.execute_with(dead, planned.size), kParamInvalid, {"workspace"});
  planned.replan();
  void* pinned = nullptr;
  require(aclrtMallocHost(&pinned, planned.size), "aclrtMallocHost");
  expect_refusal(planned, planned.execute_with(pinned, planned.size), kParamInvalid, {"workspace"});
  require(aclrtFreeHost(pinned), "aclrtFreeHost");
}

TEST_P(Memory, TensorThatLeavesItsAllocation) {
  const size_t count = make_small_problem(row()).tensors.size();
  for (size_t i = 0; i < count; ++i) {
    Planned planned(row());
    if (!touched(planned, i)) continue;
    const Tensor& tensor = *planned.problem.tensors[i];
    const std::string& name = planned.problem.parameters[i].name;
    const size_t allocated = (bytes_of(tensor) + 31) / 32 * 32 + 32;
    const DeviceMemory exact(bytes_of(tensor));
    // One element beyond the slack.
    auto* late =
        static_cast<uint8_t*>(exact.get()) + allocated - bytes_of(tensor) + tensor.element_size();
    ASSERT_EQ(aclSetRawTensorAddr(tensor.handle(), late), kOk);
    expect_refusal(planned, planned.execute(), kParamInvalid,
                   {name, std::to_string(allocated), std::to_string(bytes_of(tensor))});
    // Known in phase one already.
    const SmallProblem& problem = planned.problem;
    expect_refused([&](uint64_t* s, aclOpExecutor** e) { return problem.plan(s, e); },
                   kParamInvalid, {problem.function, name, std::to_string(allocated)});
    // The slack itself may be used.
    ASSERT_EQ(aclSetRawTensorAddr(tensor.handle(), late - tensor.element_size()), kOk);
    planned.replan();
    EXPECT_EQ(planned.execute(), kOk) << take_message();
    static_cast<void>(aclrtSynchronizeStream(stream()));
    take_message();
  }
}

TEST_P(Memory, TensorThatBeginsBeforeItsAllocation) {
  const size_t output = make_small_problem(row()).first_output();
  for (const size_t i : {size_t{0}, output}) {
    const Planned planned(row(), Arrangement::kReversed);
    const Tensor& tensor = *planned.problem.tensors[i];
    const DeviceMemory exact(bytes_of(tensor));
    const Dims& dims = tensor.dims();
    // The view starts one element too early for its negative strides.
    aclTensor* early =
        aclCreateTensor(dims.data(), dims.size(), tensor.dtype(), tensor.strides().data(),
                        tensor.offset() - 1, ACL_FORMAT_ND, nullptr, 0, exact.get());
    Handles handles = planned.problem.handles();
    handles[i] = early;
    expect_refused(
        [&](uint64_t* s, aclOpExecutor** e) { return planned.problem.plan_with(handles, s, e); },
        kParamInvalid, {planned.problem.function, planned.problem.parameters[i].name});
    EXPECT_EQ(aclDestroyTensor(early), kOk);
    EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
  }
}

TEST_P(Memory, DeadAndPinnedTensors) {
  const size_t count = make_small_problem(row()).tensors.size();
  void* dead = nullptr;
  require(aclrtMalloc(&dead, 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  require(aclrtFree(dead), "aclrtFree");
  void* pinned = nullptr;
  require(aclrtMallocHost(&pinned, 1 << 16), "aclrtMallocHost");
  for (void* const address : {dead, pinned}) {
    for (size_t i = 0; i < count; ++i) {
      const Planned planned(row());
      if (!touched(planned, i)) continue;
      const std::string& name = planned.problem.parameters[i].name;
      aclTensor* handle = planned.problem.tensors[i]->handle();
      ASSERT_EQ(aclSetRawTensorAddr(handle, address), kOk);
      expect_refusal(planned, planned.execute(), kParamInvalid, {name});
      const SmallProblem& problem = planned.problem;
      expect_refused([&](uint64_t* s, aclOpExecutor** e) { return problem.plan(s, e); },
                     kParamInvalid, {problem.function, name});
    }
  }
  require(aclrtFreeHost(pinned), "aclrtFreeHost");
}

TEST_P(Memory, UnknownMemoryIsTakenAsItIs) {
  const Planned planned(row());
  const SmallProblem& problem = planned.problem;
  std::vector<std::vector<uint8_t>> host;
  for (const auto& tensor : problem.tensors) {
    host.push_back(tensor->bits());
    ASSERT_EQ(aclSetRawTensorAddr(tensor->handle(), host.back().data()), kOk);
  }
  if (aclgrad_has_device_queues()) {  // a GPU does not reach it
    ASSERT_EQ(planned.execute(), kParamInvalid);
    expect_message(take_message(), {problem.function, "memory of the host"});
    return;
  }
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS) << take_message();
  std::vector<uint8_t> result;
  for (size_t i = 0; i < host.size(); ++i) {
    if (problem.parameters[i].output) result.insert(result.end(), host[i].begin(), host[i].end());
  }
  EXPECT_TRUE(result == expected());
}

// storageDims bound a view of unknown memory, unless they are the view's own dims or none.
TEST_P(Memory, StorageDimsOfUnknownMemory) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "a GPU does not reach it";
  const SmallProblem problem = make_small_problem(row(), Arrangement::kRowPadded);
  const Tensor& tensor = *problem.tensors[0];
  const Dims& dims = tensor.dims();
  std::vector<uint8_t> host(static_cast<size_t>(4 * tensor.numel()) * tensor.element_size());
  const auto status_with = [&](const Dims& storage) {
    Handles handles = problem.handles();
    aclTensor* handle =
        aclCreateTensor(dims.data(), dims.size(), tensor.dtype(), tensor.strides().data(), 0,
                        ACL_FORMAT_ND, storage.data(), storage.size(), host.data());
    handles[0] = handle;
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    take_message();
    const aclnnStatus status = problem.plan_with(handles, &size, &executor);
    if (status == kOk) {
      EXPECT_EQ(aclDestroyAclOpExecutor(executor), kOk);
    } else {
      expect_message(take_message(), {problem.function, problem.parameters[0].name});
    }
    EXPECT_EQ(aclDestroyTensor(handle), kOk);
    return status;
  };
  EXPECT_EQ(status_with({4 * tensor.numel()}), kOk);
  EXPECT_EQ(status_with({tensor.numel()}), kParamInvalid) << "the rows' padding leaves it";
  EXPECT_EQ(status_with(dims), kOk);
  EXPECT_EQ(status_with({}), kOk);
}

TEST_P(Memory, StorageDimsOfAnAllocationDoNotMatter) {
  const SmallProblem problem = make_small_problem(row());
  Handles handles = problem.handles();
  const int64_t one = 1;
  for (size_t i = 0; i < handles.size(); ++i) {
    const Tensor& tensor = *problem.tensors[i];
    handles[i] = aclCreateTensor(tensor.dims().data(), tensor.dims().size(), tensor.dtype(),
                                 nullptr, 0, ACL_FORMAT_ND, &one, 1, tensor.address());
  }
  const Outcome outcome =
      run([&](uint64_t* s, aclOpExecutor** e) { return problem.plan_with(handles, s, e); },
          problem.execute);
  EXPECT_TRUE(outcome.ok()) << outcome;
  EXPECT_TRUE(problem.result() == expected());
  for (const aclTensor* handle : handles) EXPECT_EQ(aclDestroyTensor(handle), kOk);
}

// Whatever is freed after phase two is released when the work is done, and refused at once.
TEST_P(Memory, FreedWhileTheWorkWaits) {
  const Planned planned(row(), Arrangement::kInnerStrided);
  std::vector<void*> inputs;
  for (size_t i = 0; i < planned.problem.first_output(); ++i) {
    const Tensor& tensor = *planned.problem.tensors[i];
    const size_t bytes = tensor.storage_bytes();
    void* copy = nullptr;
    require(aclrtMalloc(&copy, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    require(aclrtMemcpy(copy, bytes, tensor.address(), bytes, ACL_MEMCPY_DEVICE_TO_DEVICE),
            "aclrtMemcpy");
    require(aclSetRawTensorAddr(tensor.handle(), copy), "aclSetRawTensorAddr");
    inputs.push_back(copy);
  }
  void* workspace = nullptr;
  require(aclrtMalloc(&workspace, planned.size, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  OwnStream own;
  Gate gate(own.get());
  ASSERT_EQ(planned.problem.execute(workspace, planned.size, planned.executor, own.get()), kOk)
      << take_message();
  inputs.push_back(workspace);
  for (void* memory : inputs) {
    EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
    EXPECT_EQ(aclrtFree(memory), ACL_ERROR_INVALID_PARAM) << "dead at once";
  }
  std::vector<DeviceMemory> others;  // new allocations must not get that memory yet
  for (int i = 0; i < 64; ++i) {
    others.emplace_back(size_t{64} << (i % 8));
    require(aclrtMemset(others.back().get(), size_t{64} << (i % 8), 0x77, size_t{64} << (i % 8)),
            "aclrtMemset");
  }
  gate.open();
  ASSERT_EQ(aclrtSynchronizeStream(own.get()), ACL_SUCCESS) << take_message();
  expect_done(planned, expected());
}

INSTANTIATE_TEST_SUITE_P(All, Memory, ::testing::Range(size_t{0}, small_problem_count()), row_name);

}  // namespace
}  // namespace aclgrad::test
