// SPDX-License-Identifier: Apache-2.0
// A program as clients of the interface write them: sums 40 rows of ones in groups that end at rows
// 5, 15, 30 and 40, and prints one element of each sum.
#include <cstdio>
#include <memory>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_grouped_bias_add_grad.h"

namespace {

using TensorPointer = std::unique_ptr<aclTensor, decltype(&aclDestroyTensor)>;

int check(const char* what, int status) {
  if (status != 0) {
    const char* message = aclGetRecentErrMsg();
    std::printf("%s: %d %s\n", what, status, message != nullptr ? message : "");
  }
  return status;
}

// A contiguous tensor with its own device memory, filled from `values`.
template <class T>
TensorPointer make_tensor(const std::vector<T>& values, const std::vector<int64_t>& shape,
                          aclDataType dtype, void** memory) {
  const size_t bytes = values.size() * sizeof(T);
  if (check("aclrtMalloc", aclrtMalloc(memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST)) != 0 ||
      check("aclrtMemcpy",
            aclrtMemcpy(*memory, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE)) != 0) {
    return TensorPointer(nullptr, &aclDestroyTensor);
  }
  return TensorPointer(aclCreateTensor(shape.data(), shape.size(), dtype, nullptr, 0, ACL_FORMAT_ND,
                                       shape.data(), shape.size(), *memory),
                       &aclDestroyTensor);
}

int run() {
  const std::vector<int64_t> ends = {5, 15, 30, 40};
  const std::vector<float> ones(400, 1.0f);
  std::vector<float> sums(40, -1.0f);
  aclrtStream stream = nullptr;
  if (check("aclrtCreateStream", aclrtCreateStream(&stream)) != 0) return 1;
  void* memory[3] = {};
  const TensorPointer gradient = make_tensor(ones, {40, 10}, ACL_FLOAT, &memory[0]);
  const TensorPointer groups = make_tensor(ends, {4}, ACL_INT64, &memory[1]);
  const TensorPointer out = make_tensor(sums, {4, 10}, ACL_FLOAT, &memory[2]);

  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  if (check("aclnnGroupedBiasAddGradGetWorkspaceSize",
            aclnnGroupedBiasAddGradGetWorkspaceSize(gradient.get(), groups.get(), out.get(),
                                                    &workspace_size, &executor)) != 0) {
    return 1;
  }
  void* workspace = nullptr;
  if (workspace_size > 0 && check("aclrtMalloc", aclrtMalloc(&workspace, workspace_size,
                                                             ACL_MEM_MALLOC_HUGE_FIRST)) != 0) {
    return 1;
  }
  if (check("aclnnGroupedBiasAddGrad",
            aclnnGroupedBiasAddGrad(workspace, workspace_size, executor, stream)) != 0 ||
      check("aclrtSynchronizeStream", aclrtSynchronizeStream(stream)) != 0 ||
      check("aclrtMemcpy",
            aclrtMemcpy(sums.data(), 160, memory[2], 160, ACL_MEMCPY_DEVICE_TO_HOST)) != 0) {
    return 1;
  }
  if (workspace != nullptr) check("aclrtFree", aclrtFree(workspace));
  for (void* pointer : memory) check("aclrtFree", aclrtFree(pointer));
  check("aclrtDestroyStream", aclrtDestroyStream(stream));
  for (size_t group = 0; group < 4; ++group) {
    std::printf("%g%c", static_cast<double>(sums[group * 10 + group]), group == 3 ? '\n' : ' ');
  }
  return 0;
}

}  // namespace

int main() {
  if (check("aclInit", aclInit(nullptr)) != 0) return 1;
  if (check("aclrtSetDevice", aclrtSetDevice(0)) != 0) return 1;
  const int status = run();
  check("aclrtResetDevice", aclrtResetDevice(0));
  check("aclFinalize", aclFinalize());
  return status;
}
