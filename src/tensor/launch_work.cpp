// SPDX-License-Identifier: Apache-2.0
// A run: inputs are packed, the operator's call computes, outputs are unpacked, all on the thread
// that runs the stream (and those it asks for help).
#include <chrono>
#include <cstdio>

#include "base/dtype.h"
#include "base/verbose.h"
#include "kernels/cpu/strided_copy.h"
#include "kernels/cpu/target.h"
#include "runtime/services.h"
#include "tensor/launch_state.h"
#include "tensor/overlap.h"

namespace aclgrad {
namespace {

constexpr uintptr_t kAlignment = 64;

View packed_view(const View& view) { return contiguous_view(view.dtype, view.rank, view.dims); }

}  // namespace

bool LaunchWork::bind(const Addresses& bases, void* workspace, uint32_t copies,
                      bool planned) noexcept {
  if (bound_ && planned && copies == 0 && workspace == bound_workspace_) {
    next = nullptr;
    return true;  // as it was for the run before
  }
  bound_ = planned && copies == 0;
  bound_workspace_ = workspace;
  workspace_ = (reinterpret_cast<uintptr_t>(workspace) + kAlignment - 1) & ~(kAlignment - 1);
  copies_ = 0;
  apart_ = false;
  next = nullptr;
  for (size_t i = 0; i < state_.operand_count; ++i) {
    const PlannedOperand& operand = state_.operands[i];
    void*& address = run_.addresses_[i];
    address = operand.touched ? static_cast<std::byte*>(bases[i]) + operand.first : nullptr;
    if (!operand.packed && (copies >> i & 1) == 0) continue;
    apart_ = true;
    addresses_[i] = address;
    if (operand.packed) {
      address = packed_address(operand);
      continue;
    }
    copies_ |= uint32_t{1} << i;
    scratch_[i] = nullptr;
    // Elsewhere it is taken from the queue, when the run is handed over.
    if (aclgrad_has_device_queues()) continue;
    scratch_[i] = aclgrad_allocate_scratch(static_cast<size_t>(operand.high - operand.low));
    if (scratch_[i] == nullptr) return false;
    place_scratch(i);
  }
  for (size_t i = 0; i < state_.region_count; ++i) {
    run_.regions_[i] =
        reinterpret_cast<void*>(workspace_ + static_cast<uintptr_t>(state_.regions[i]));
  }
  return true;
}

void LaunchWork::place_scratch(size_t i) {
  const PlannedOperand& operand = state_.operands[i];
  run_.addresses_[i] = static_cast<std::byte*>(scratch_[i]) + (operand.first - operand.low);
}

void LaunchWork::release_scratch() noexcept {
  for (size_t i = 0; copies_ != 0; ++i, copies_ >>= 1) {
    if ((copies_ & 1) != 0) aclgrad_free_scratch(scratch_[i]);
  }
}

void LaunchWork::operator delete(LaunchWork* work, std::destroying_delete_t) noexcept {
  LaunchState& state = work->state_;
  if (work->embedded_) {
    work->release_scratch();
    work->begin_ = work->end_ = nullptr;
    return state.release_own_work();
  }
  work->~LaunchWork();
  ::operator delete(work);
  state.release();
}

void* LaunchWork::packed_address(const PlannedOperand& operand) const {
  return reinterpret_cast<void*>(workspace_ + static_cast<uintptr_t>(operand.packed_at));
}

void LaunchWork::pack_inputs() const {
  for (size_t i = 0; i < state_.operand_count; ++i) {
    const PlannedOperand& operand = state_.operands[i];
    if (!operand.packed || operand.role != Role::kInput) continue;
    strided_copy(operand.view, addresses_[i], packed_view(operand.view), packed_address(operand));
  }
}

void LaunchWork::write_outputs() const {
  for (size_t i = 0; i < state_.operand_count; ++i) {
    const PlannedOperand& operand = state_.operands[i];
    if (operand.role != Role::kOutput) continue;
    const CopyOrder order = operand.sequential ? CopyOrder::kSequential : CopyOrder::kParallel;
    if (operand.packed) {
      strided_copy(packed_view(operand.view), packed_address(operand), operand.view, addresses_[i],
                   order);
    } else if ((copies_ >> i & 1) != 0) {
      strided_copy(operand.view, run_.addresses_[i], operand.view, addresses_[i], order);
    }
  }
}

void LaunchWork::print_line(int64_t nanoseconds) const noexcept {
  int64_t packed = 0;
  for (size_t i = 0; i < state_.operand_count; ++i) {
    const PlannedOperand& operand = state_.operands[i];
    if (!operand.packed && (copies_ >> i & 1) == 0) continue;
    packed += operand.elements * static_cast<int64_t>(dtype_size(operand.view.dtype));
  }
  const bool on_cuda = aclgrad_has_device_queues();
  const char* const cpu = state_.target != nullptr ? state_.target : aclgrad_active_target();
  const char* const target = on_cuda ? "gpu" : cpu;
  const char* problem = state_.problem.empty() ? state_.op : state_.problem.c_str();
  char line[512];
  std::snprintf(line, sizeof line, "aclgrad: %.300s %s %s time %.1f us bytes %.0f packed %lld",
                problem, on_cuda ? "cuda" : "cpu", target,
                static_cast<double>(nanoseconds) / 1000.0, state_.bytes,
                static_cast<long long>(packed));
  aclgrad_print_line(line);
}

void LaunchWork::run(DataErrors& errors) noexcept {
  using Clock = std::chrono::steady_clock;
  const bool verbose = aclgrad_verbose();
  const Clock::time_point start = verbose ? Clock::now() : Clock::time_point();
  run_.errors_ = &errors;
  if (apart_) pack_inputs();
  if (state_.call.run != nullptr) state_.call.run(state_.call_room.data(), run_);
  if (apart_) write_outputs();
  if (!verbose) return;
  const auto taken = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
  print_line(taken.count());
}

}  // namespace aclgrad
