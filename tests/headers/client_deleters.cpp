// SPDX-License-Identifier: Apache-2.0
// Programs hold the objects in smart pointers with the destroying functions as deleters, look
// functions up by name with decltype, and give constants to templates and switches.
#include <memory>

#include "acl/acl.h"
#include "aclnnop/aclnn_layer_norm_backward.h"

using TensorPointer = std::unique_ptr<aclTensor, decltype(&aclDestroyTensor)>;
using ArrayPointer = std::unique_ptr<aclIntArray, aclnnStatus (*)(const aclIntArray*)>;
using ExecutorPointer = std::unique_ptr<aclOpExecutor, decltype(&aclDestroyAclOpExecutor)>;
using PhaseTwo = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

int smart_pointer_client(void* phase_two, int status);

int smart_pointer_client(void* phase_two, int status) {
  const TensorPointer tensor(nullptr, &aclDestroyTensor);
  const ArrayPointer array(nullptr, aclDestroyIntArray);
  const ExecutorPointer executor(nullptr, &aclDestroyAclOpExecutor);
  const auto run = reinterpret_cast<decltype(&aclnnLayerNormBackward)>(phase_two);
  const PhaseTwo same = run;
  switch (status) {
    case ACL_SUCCESS:
      return same(nullptr, 0, executor.get(), nullptr);
    case ACL_ERROR_REPEAT_INITIALIZE:
    case ACL_ERROR_RT_AICORE_EXCEPTION:
      return OK;
    default:
      return tensor || array ? status : ACL_ERROR_FAILURE;
  }
}
