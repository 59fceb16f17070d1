// SPDX-License-Identifier: Apache-2.0
// Phase two, the same for all operators.
#include "tensor/executor.h"

#include <cstring>

#include "runtime/services.h"
#include "tensor/addresses.h"
#include "tensor/tensor.h"

namespace aclgrad {

constinit HandleTable<Executor> executors{Kind::kExecutor};

aclOpExecutor* create_executor(LaunchState& state) {
  return static_cast<aclOpExecutor*>(executors.create(state));
}

namespace {

Status refuse_executor(const char* op, const void* executor) {
  return fail(kParamInvalid,
              "%s: executor is %s; expected one that %sGetWorkspaceSize returned and that was not "
              "run yet",
              op, handle::describe(executor, Kind::kExecutor), op);
}

// A one-shot executor is at its end from here on, whatever the answer; false for the loser of two
// threads.
bool claim(Executor& executor, const void* handle) {
  if (executor.repeatable()) return true;
  if (executor.spend()) {
    executors.destroy(handle);
    return true;
  }
  return executor.repeatable();
}

Status check_plan(const char* op, const LaunchState& state, uint64_t workspace_size) {
  if (workspace_size < state.planned_size()) {
    return fail(kParamInvalid, "%s: workspaceSize is %llu; expected at least the planned %llu", op,
                static_cast<unsigned long long>(workspace_size),
                static_cast<unsigned long long>(state.planned_size()));
  }
  if (op == state.op || std::strcmp(op, state.op) == 0) return kOk;
  return fail(kParamInvalid, "%s: executor was made by %sGetWorkspaceSize; expected one of %s", op,
              state.op, op);
}

// The addresses that the live tensors have now. `same`: phase one saw these very addresses, so that
// what it found of overlaps holds.
Status read_addresses(const LaunchState& state, Addresses& bases, bool& same) {
  same = state.verified;
  for (size_t i = 0; i < state.operand_count; ++i) {
    const PlannedOperand& operand = state.operands[i];
    void* data = nullptr;
    if (operand.handle != nullptr &&
        !operand.read([&](const Tensor& tensor) { data = tensor.data(); })) {
      return fail(
          kParamInvalid,
          "%s: %s was destroyed after phase one; expected it alive until phase two returned",
          state.op, operand.name);
    }
    bases[i] = data;
    if (!operand.touched) continue;
    if (data == nullptr) {
      return fail(kParamNullptr,
                  "%s: %s has %lld elements and a null address; expected their address", state.op,
                  operand.name, static_cast<long long>(operand.elements));
    }
    same = same && data == operand.data;
  }
  return kOk;
}

// The work of a run: the state's own one where no other run has it, which is always so for a
// one-shot executor.
class RunWork {
 public:
  RunWork(LaunchState& state, bool repeatable)
      : state_(state), taken_(repeatable && state.take_own_work()), own_(taken_ || !repeatable) {}
  ~RunWork() {
    if (taken_) state_.release_own_work();
  }
  RunWork(const RunWork&) = delete;
  RunWork& operator=(const RunWork&) = delete;

  // It is the state's, and this run may change it.
  bool own() const { return own_; }
  // From here on it frees itself.
  LaunchWork* hand_over() {
    LaunchWork* const work = own_ ? &state_.work : new LaunchWork(state_, false);
    if (!taken_) state_.retain();
    taken_ = false;
    return work;
  }

 private:
  LaunchState& state_;
  bool taken_;
  bool own_;
};

Status enqueue(LaunchState& state, RunWork& run_work, const Addresses& bases, void* workspace,
               uint32_t copies, bool planned, aclrtStream stream, AddressUse& use) {
  LaunchWork* const work = run_work.hand_over();
  if (!work->bind(bases, workspace, copies, planned)) {
    delete work;
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
                "%s: out of memory for the private copy of an output whose overlap with another "
                "tensor cannot be told",
                state.op);
  }
  return aclgrad_enqueue(state.op, stream, work, &use);
}

Status run(const char* op, void* workspace, uint64_t workspace_size, aclOpExecutor* executor,
           aclrtStream stream) {
  if (executor == nullptr) {
    return fail(kParamNullptr, "%s: executor is null; expected the one of %sGetWorkspaceSize", op,
                op);
  }
  if (workspace_size > 0 && workspace == nullptr) {
    return fail(kParamNullptr, "%s: workspace is null while workspaceSize is %llu; expected memory",
                op, static_cast<unsigned long long>(workspace_size));
  }
  const auto pin = executors.pin(executor);
  if (!pin || !claim(*pin, executor)) return refuse_executor(op, executor);
  LaunchState& state = pin->state();
  if (const Status status = check_plan(op, state, workspace_size)) return status;
  Addresses bases;
  AddressUse use;
  bool same = false;
  if (const Status status = read_addresses(state, bases, same)) return status;
  const bool repeatable = pin->repeatable();
  uint32_t copies = same ? state.verified_copies : 0;
  const uint64_t changes = aclgrad_allocation_changes();
  if (!same || state.verified_changes != changes) {
    if (const Status status = check_ranges(state, bases, changes)) return status;
  }
  RunWork run_work(state, repeatable);
  const bool known = same && run_work.own() && state.work.knows(workspace, changes);
  if (state.planned_size() > 0 && !known) {
    if (const Status status = check_workspace(state, bases, workspace, changes)) return status;
  }
  if (!same) {
    if (const Status status = check_overlaps(state, bases, copies)) return status;
  }
  if (aclgrad_has_device_queues()) {
    if (const Status status = check_reach(state, bases, workspace, stream)) return status;
  }
  if (run_work.own()) state.work.note_known(workspace, changes);
  const Status status = enqueue(state, run_work, bases, workspace, copies, same, stream, use);
  // Where launches block, 361001 is the answer of a run that found a data error.
  if (repeatable && (status == kOk || status == kRuntimeError)) pin->note_run();
  return status;
}

}  // namespace

extern "C" Status aclgrad_run_phase(const char* op, void* workspace, uint64_t workspace_size,
                                    aclOpExecutor* executor, aclrtStream stream) noexcept {
  return guarded(op, ACL_ERROR_BAD_ALLOC,
                 [&] { return run(op, workspace, workspace_size, executor, stream); });
}

}  // namespace aclgrad
