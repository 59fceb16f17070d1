// SPDX-License-Identifier: Apache-2.0
// The C functions on executors, and the start and stop of the operator library.
#include "aclnn/aclnn_base.h"
#include "tensor/boundary.h"
#include "tensor/executor.h"
#include "tensor/objects.h"
#include "tensor/tensor.h"

namespace aclgrad {
namespace {

enum class Which : uint8_t { kInputs, kOutputs, kAll };

const char* plural(Which which) {
  return which == Which::kInputs ? "inputs" : which == Which::kOutputs ? "outputs" : "tensors";
}

Status refuse_executor(const char* function, const void* executor) {
  return refuse_handle(function, "executor", executor, Kind::kExecutor, kInner);
}

size_t count(const LaunchState& state, bool outputs) {
  size_t found = 0;
  for (size_t i = 0; i < state.operand_count; ++i) {
    if (state.operands[i].is_output() == outputs) ++found;
  }
  return found;
}

// The index-th operand among inputs or outputs; null when there are fewer.
const PlannedOperand* nth(const LaunchState& state, bool outputs, size_t index) {
  for (size_t i = 0; i < state.operand_count; ++i) {
    if (state.operands[i].is_output() != outputs) continue;
    if (index-- == 0) return &state.operands[i];
  }
  return nullptr;
}

const PlannedOperand* find_operand(const LaunchState& state, Which which, size_t index) {
  const size_t inputs = count(state, false);
  if (which == Which::kAll && index >= inputs) return nth(state, true, index - inputs);
  return nth(state, which == Which::kOutputs, index);
}

Status refuse_index(const char* function, const char* parameter, const LaunchState& state,
                    Which which, size_t index) {
  const size_t inputs = count(state, false);
  const size_t outputs = count(state, true);
  const size_t most = which == Which::kInputs    ? inputs
                      : which == Which::kOutputs ? outputs
                                                 : inputs + outputs;
  return fail(kParamInvalid, "%s: %s is %zu; expected less than %zu, the %s of %s", function,
              parameter, index, most, plural(which), state.op);
}

Status set_address(const char* function, Which which, aclOpExecutor* executor, size_t index,
                   aclTensor* tensor, void* address) {
  return guarded(function, ACL_ERROR_BAD_ALLOC, [&]() -> Status {
    if (executor == nullptr) return refuse_null(function, "executor", kInnerNullptr);
    if (tensor == nullptr) return refuse_null(function, "tensor", kInnerNullptr);
    const auto pin = executors.pin(executor);
    if (!pin) return refuse_handle(function, "executor", executor, Kind::kExecutor, kParamInvalid);
    const auto object = tensors.pin(tensor);
    if (!object) return refuse_handle(function, "tensor", tensor, Kind::kTensor, kParamInvalid);
    const LaunchState& state = pin->state();
    const PlannedOperand* operand = find_operand(state, which, index);
    if (operand == nullptr) return refuse_index(function, "index", state, which, index);
    if (operand->handle != tensor) {
      return fail(kParamInvalid,
                  "%s: tensor is not the one that %s was given as %s at index %zu%s; expected that "
                  "one",
                  function, state.op, operand->name, index,
                  operand->handle == nullptr ? " (which was absent)" : "");
    }
    object->set_data(address);
    return kOk;
  });
}

// No operator here has a parameter that is a list of tensors, so every index names something else.
Status set_list_address(const char* function, Which which, aclOpExecutor* executor, size_t index,
                        size_t relative, const aclTensorList* list) {
  return guarded(function, ACL_ERROR_BAD_ALLOC, [&]() -> Status {
    if (executor == nullptr) return refuse_null(function, "executor", kInnerNullptr);
    if (list == nullptr) return refuse_null(function, "tensors", kInnerNullptr);
    const auto pin = executors.pin(executor);
    if (!pin) return refuse_handle(function, "executor", executor, Kind::kExecutor, kParamInvalid);
    const auto object = tensor_lists.pin(list);
    if (!object) return refuse_handle(function, "tensors", list, Kind::kTensorList, kParamInvalid);
    const LaunchState& state = pin->state();
    const PlannedOperand* operand = find_operand(state, which, index);
    if (operand == nullptr) return refuse_index(function, "irIndex", state, which, index);
    if (relative >= object->size) {
      return fail(kParamInvalid,
                  "%s: relativeIndex is %zu; expected less than %llu, the list's size", function,
                  relative, static_cast<unsigned long long>(object->size));
    }
    return fail(kParamInvalid,
                "%s: irIndex is %zu, which names %s of %s, a single tensor; expected a list of "
                "tensors",
                function, index, operand->name, state.op);
  });
}

Status make_repeatable(const char* function, aclOpExecutor* executor) {
  return guarded(function, ACL_ERROR_BAD_ALLOC, [&]() -> Status {
    if (executor == nullptr) return refuse_null(function, "executor", kInnerNullptr);
    const auto pin = executors.pin(executor);
    if (pin && pin->make_repeatable()) return kOk;
    if (pin && pin->repeated()) {
      return fail(kInner, "%s: executor was run already; expected one before its first run",
                  function);
    }
    if (pin && pin->repeatable()) return kOk;
    return refuse_executor(function, executor);
  });
}

Status destroy_executor(const char* function, aclOpExecutor* executor) {
  return guarded(function, ACL_ERROR_BAD_ALLOC, [&]() -> Status {
    if (executor == nullptr) return refuse_null(function, "executor", kInnerNullptr);
    const auto pin = executors.pin(executor);
    // spend() first: a phase two that runs at this moment on another thread wins or loses whole.
    if (pin && (pin->repeatable() || pin->spend()) && executors.destroy(executor)) return kOk;
    return refuse_executor(function, executor);
  });
}

Status do_nothing(const char* function) {
  return guarded(function, ACL_ERROR_BAD_ALLOC, [] { return kOk; });
}

}  // namespace
}  // namespace aclgrad

// One by one: the table `tensors` of the namespace would be hidden by the parameters of that name.
using aclgrad::destroy_executor;
using aclgrad::do_nothing;
using aclgrad::make_repeatable;
using aclgrad::set_address;
using aclgrad::set_list_address;
using aclgrad::Which;

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  return make_repeatable(__func__, executor);
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  return destroy_executor(__func__, executor);
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                  void* addr) {
  return set_address(__func__, Which::kInputs, executor, index, tensor, addr);
}

aclnnStatus aclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                   void* addr) {
  return set_address(__func__, Which::kOutputs, executor, index, tensor, addr);
}

aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                             void* addr) {
  return set_address(__func__, Which::kAll, executor, index, tensor, addr);
}

aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                         const size_t relativeIndex, aclTensorList* tensors,
                                         void* /*addr*/) {
  return set_list_address(__func__, Which::kInputs, executor, irIndex, relativeIndex, tensors);
}

aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                          const size_t relativeIndex, aclTensorList* tensors,
                                          void* /*addr*/) {
  return set_list_address(__func__, Which::kOutputs, executor, irIndex, relativeIndex, tensors);
}

aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                    const size_t relativeIndex, aclTensorList* tensors,
                                    void* /*addr*/) {
  return set_list_address(__func__, Which::kAll, executor, irIndex, relativeIndex, tensors);
}

aclnnStatus AclSetInputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                  void* addr) {
  return set_address(__func__, Which::kInputs, executor, index, tensor, addr);
}

aclnnStatus AclSetOutputTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                                   void* addr) {
  return set_address(__func__, Which::kOutputs, executor, index, tensor, addr);
}

aclnnStatus AclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor,
                             void* addr) {
  return set_address(__func__, Which::kAll, executor, index, tensor, addr);
}

aclnnStatus AclSetDynamicInputTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                         const size_t relativeIndex, aclTensorList* tensors,
                                         void* /*addr*/) {
  return set_list_address(__func__, Which::kInputs, executor, irIndex, relativeIndex, tensors);
}

aclnnStatus AclSetDynamicOutputTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                          const size_t relativeIndex, aclTensorList* tensors,
                                          void* /*addr*/) {
  return set_list_address(__func__, Which::kOutputs, executor, irIndex, relativeIndex, tensors);
}

aclnnStatus AclSetDynamicTensorAddr(aclOpExecutor* executor, size_t irIndex,
                                    const size_t relativeIndex, aclTensorList* tensors,
                                    void* /*addr*/) {
  return set_list_address(__func__, Which::kAll, executor, irIndex, relativeIndex, tensors);
}

aclnnStatus aclnnInit(const char* /*configPath*/) { return do_nothing(__func__); }

aclnnStatus aclnnFinalize(void) { return do_nothing(__func__); }

// Looked up by name by some programs, which manage memory of their own through them; no header
// declares them.
extern "C" {
ACL_FUNC_VISIBILITY int InitHugeMemThreadLocal(void* argument, bool sync);
ACL_FUNC_VISIBILITY void UnInitHugeMemThreadLocal(void* argument, bool sync);
ACL_FUNC_VISIBILITY void ReleaseHugeMem(void* argument, bool sync);

int InitHugeMemThreadLocal(void* /*argument*/, bool /*sync*/) { return 0; }
void UnInitHugeMemThreadLocal(void* /*argument*/, bool /*sync*/) {}
void ReleaseHugeMem(void* /*argument*/, bool /*sync*/) {}
}
