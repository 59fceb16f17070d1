// SPDX-License-Identifier: Apache-2.0
// A run on a GPU: the kernels that pack, compute and unpack are handed to its stream one behind the
// other. What they found is looked at when they are done.
#include <utility>

#include "base/config.h"
#include "base/dtype.h"
#include "base/verbose.h"
#include "kernels/cuda/strided_copy.h"
#include "runtime/services.h"
#include "tensor/launch_state.h"

namespace aclgrad {
namespace {

View packed_view(const View& view) { return contiguous_view(view.dtype, view.rank, view.dims); }

CudaAnswer copy_view(const View& from, const void* source, const View& to, void* target,
                     bool sequential, const CudaQueue& queue) {
  if constexpr (config::kHasCuda) {
    return cuda_strided_copy(from, source, to, target, sequential, queue);
  } else {
    return 0;
  }
}

}  // namespace

Status LaunchWork::submit(const char* function, DeviceQueue& queue) {
  record_ = nullptr;
  const bool verbose = aclgrad_verbose();
  if (verbose) {
    if (const Status status = queue.record(function, begin_)) return status;
  }
  Status status = kOk;
  for (size_t i = 0; i < state_.operand_count && status == kOk; ++i) {
    if ((copies_ >> i & 1) == 0) continue;
    const PlannedOperand& operand = state_.operands[i];
    status =
        queue.take_scratch(function, static_cast<size_t>(operand.high - operand.low), scratch_[i]);
    if (status == kOk) place_scratch(i);
  }
  const CudaQueue cuda{queue.native(), queue.native_device()};
  if (status == kOk) status = prepare_call(function, queue, cuda);
  if (status == kOk) status = hand_over(function, queue, cuda);
  if (run_.scratch_ != nullptr) queue.give_scratch(std::exchange(run_.scratch_, nullptr));
  for (size_t i = 0; i < state_.operand_count; ++i) {
    if ((copies_ >> i & 1) == 0 || scratch_[i] == nullptr) continue;
    queue.give_scratch(scratch_[i]);
    scratch_[i] = nullptr;
  }
  return verbose && status == kOk ? queue.record(function, end_) : status;
}

// Whatever may have to wait for memory comes before the first kernel: other threads go on
// meanwhile, and what they hand over may use the same workspace.
Status LaunchWork::prepare_call(const char* function, DeviceQueue& queue, const CudaQueue& cuda) {
  const CallFunctions& call = state_.call;
  if (call.run_on_cuda == nullptr) return kOk;
  if (call.explain != nullptr) {
    if (const Status status = queue.take_record(function, record_)) return status;
  }
  if (call.scratch_on_cuda == nullptr) return kOk;
  size_t bytes = 0;
  const CudaAnswer answer = call.scratch_on_cuda(state_.call_room.data(), cuda, bytes);
  if (const Status status = queue.launched(function, answer)) return status;
  return bytes == 0 ? kOk : queue.take_scratch(function, bytes, run_.scratch_);
}

Status LaunchWork::hand_over(const char* function, DeviceQueue& queue, const CudaQueue& cuda) {
  for (size_t i = 0; i < state_.operand_count; ++i) {
    const PlannedOperand& operand = state_.operands[i];
    if (!operand.packed || operand.role != Role::kInput) continue;
    const CudaAnswer answer = copy_view(operand.view, addresses_[i], packed_view(operand.view),
                                        packed_address(operand), false, cuda);
    if (const Status status = queue.launched(function, answer)) return status;
  }
  const CallFunctions& call = state_.call;
  if (call.run_on_cuda != nullptr) {
    run_.queue_ = cuda;
    run_.record_ = record_;
    const CudaAnswer answer = call.run_on_cuda(state_.call_room.data(), run_);
    if (const Status status = queue.launched(function, answer)) return status;
  }
  for (size_t i = 0; i < state_.operand_count; ++i) {
    const PlannedOperand& operand = state_.operands[i];
    const bool apart = (copies_ >> i & 1) != 0;
    if (operand.role != Role::kOutput || (!operand.packed && !apart)) continue;
    const View from = operand.packed ? packed_view(operand.view) : operand.view;
    const CudaAnswer answer =
        copy_view(from, run_.addresses_[i], operand.view, addresses_[i], operand.sequential, cuda);
    if (const Status status = queue.launched(function, answer)) return status;
  }
  return kOk;
}

void LaunchWork::finish(DataErrors& errors) noexcept {
  if (record_ != nullptr && record_->rule != 0) {
    state_.call.explain(state_.call_room.data(), *record_, errors);
  }
  if (begin_ != nullptr && end_ != nullptr) print_line(begin_->nanoseconds_to(*end_));
}

}  // namespace aclgrad
