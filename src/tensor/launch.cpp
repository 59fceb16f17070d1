// SPDX-License-Identifier: Apache-2.0
#include "tensor/launch.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/verbose.h"
#include "runtime/services.h"
#include "tensor/addresses.h"
#include "tensor/executor.h"
#include "tensor/launch_state.h"
#include "tensor/overlap.h"

namespace aclgrad {
namespace {

constexpr int64_t kAlignment = 64;

// The same elements at the same places when the first ones are at one address.
bool same_view(const View& a, const View& b) {
  if (a.dtype != b.dtype || a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i) {
    const auto index = static_cast<size_t>(i);
    if (a.dims[index] != b.dims[index]) return false;
    if (a.dims[index] != 1 && a.strides[index] != b.strides[index]) return false;
  }
  return true;
}

// The place of `bytes` more bytes of workspace.
int64_t reserve(LaunchState& state, int64_t bytes) {
  const int64_t place = state.workspace;
  int64_t end = 0;
  if (bytes < 0 || __builtin_add_overflow(place, bytes, &end) ||
      end > std::numeric_limits<int64_t>::max() - 2 * kAlignment) {
    state.too_large = true;
    return place;
  }
  state.workspace = round_up(end, kAlignment);
  return place;
}

// Number by number, which is less than the whole view; and loads that straddled stores of numbers
// would wait for them.
void copy_dims(int rank, const std::array<int64_t, kMaxRank>& dims,
               const std::array<int64_t, kMaxRank>& strides, View& to) {
  to.rank = rank;
  for (size_t i = 0; i < static_cast<size_t>(rank); ++i) {
    to.dims[i] = dims[i];
    to.strides[i] = strides[i];
  }
}

void plan_views(PlannedOperand& planned, const Operand& operand, Layout layout) {
  copy_dims(operand.kept_dims(), operand.dims, operand.strides, planned.view);
  const Facts& facts = operand.facts;
  planned.elements = facts.elements;
  if (planned.elements == 0) return;
  planned.touched = true;
  planned.first = facts.first;
  planned.low = facts.low;
  planned.high = facts.high;
  planned.packed = facts.dense_dims < std::min(layout.contiguous_dims, planned.view.rank);
  if (planned.role == Role::kOutput && facts.dense_dims < planned.view.rank) {
    const Overlap overlap = self_overlap(planned.view);
    planned.self_overlapping = overlap == Overlap::kYes;
    planned.sequential = overlap == Overlap::kUndecided;
    planned.packed = planned.packed || planned.sequential;
  }
}

Status refuse_self_overlap(const char* op, const PlannedOperand& operand) {
  return fail(
      kParamInvalid,
      "%s: %s with shape %s and strides %s has two indices at one address; expected an "
      "output view without overlap",
      op, operand.name,
      shape_text(operand.view.dims.data(), static_cast<uint64_t>(operand.view.rank)).c_str(),
      shape_text(operand.view.strides.data(), static_cast<uint64_t>(operand.view.rank)).c_str());
}

// What is left to do when the operator has filled its launch, but for the addresses.
Status finish_plan(LaunchState& state) {
  for (size_t i = 0; i < state.operand_count; ++i) {
    PlannedOperand& operand = state.operands[i];
    operand.packed = operand.packed && state.runs();  // nothing runs: nothing is copied
    if (!operand.touched || !operand.packed) continue;
    operand.packed_at =
        reserve(state, operand.elements * static_cast<int64_t>(dtype_size(operand.view.dtype)));
  }
  if (state.too_large) {
    return fail(kParamInvalid,
                "%s: the workspace would take more than 2^63-1 bytes; expected "
                "smaller tensors",
                state.op);
  }
  if (state.workspace > 0) state.workspace += kAlignment - 1;
  return kOk;
}

// The addresses that are known, and what was not said of views before them.
Status check_addresses(LaunchState& state) {
  const uint64_t changes = aclgrad_allocation_changes();
  const bool verified = std::exchange(state.verified, false);
  if (!verified || state.verified_changes != changes) {
    Addresses bases;
    bool some = false;
    bool all = true;
    for (size_t i = 0; i < state.operand_count; ++i) {
      const PlannedOperand& operand = state.operands[i];
      bases[i] = operand.touched ? operand.data : nullptr;
      some = some || bases[i] != nullptr;
      all = all && (bases[i] != nullptr || !operand.touched);
    }
    if (some) {
      if (const Status status = check_ranges(state, bases, changes)) return status;
    }
    if (!verified) {  // else they are the same addresses
      state.verified_copies = 0;
      for (size_t i = 0; i < state.operand_count; ++i) {
        const PlannedOperand& operand = state.operands[i];
        if (operand.touched && operand.self_overlapping) {
          return refuse_self_overlap(state.op, operand);
        }
      }
      if (!some) return kOk;
      if (const Status status = check_overlaps(state, bases, state.verified_copies)) return status;
    }
    if (!all) return kOk;
  }
  state.verified = true;
  state.verified_changes = changes;
  return kOk;
}

}  // namespace

extern "C" {

int aclgrad_launch_operand(LaunchState& state, const Operand& operand, Layout layout, Role role,
                           View* view) {
  if (state.operand_count == kMaxOperands) throw std::length_error("too many operands");
  PlannedOperand& planned = state.operands[state.operand_count];
  planned.name = operand.name;
  planned.handle = operand.handle;
  planned.place = tensors.place_of(operand.handle);
  planned.data = operand.data;
  planned.version = operand.version;
  planned.elements = 0;
  planned.first = planned.low = planned.high = 0;
  planned.storage_elements = operand.storage_elements;
  planned.packed_at = 0;
  planned.in_place_inputs = 0;
  planned.role = role;
  planned.touched = planned.packed = planned.self_overlapping = planned.sequential = false;
  planned.view.dtype = operand.dtype;
  planned.view.rank = 0;
  const bool used = role == Role::kInput || role == Role::kOutput;
  if (operand.given() && used) plan_views(planned, operand, layout);
  if (operand.given() && view != nullptr) {
    if (planned.packed) {
      *view = contiguous_view(operand.dtype, operand.kept_dims(), operand.dims);
    } else {
      view->dtype = operand.dtype;
      copy_dims(operand.kept_dims(), operand.dims, operand.strides, *view);
    }
  }
  return static_cast<int>(state.operand_count++);
}

void aclgrad_launch_allow_in_place(LaunchState& state, int output, int input) {
  PlannedOperand& target = state.operands[static_cast<size_t>(output)];
  const PlannedOperand& source = state.operand(input);
  if (!target.touched || !source.touched || !same_view(target.view, source.view)) return;
  target.in_place_inputs |= uint32_t{1} << input;
}

View aclgrad_launch_view(const LaunchState& state, int operand) {
  const PlannedOperand& planned = state.operand(operand);
  if (!planned.packed) return planned.view;
  return contiguous_view(planned.view.dtype, planned.view.rank, planned.view.dims);
}

bool aclgrad_launch_packed(const LaunchState& state, int operand) {
  return state.operand(operand).packed;
}

int aclgrad_launch_book(LaunchState& state, int64_t bytes) {
  if (state.region_count == kMaxRegions) throw std::length_error("too many regions");
  state.regions[state.region_count] = reserve(state, bytes);
  return static_cast<int>(state.region_count++);
}

void aclgrad_launch_describe(LaunchState& state, std::string&& problem, double bytes,
                             const char* target) {
  state.problem = std::move(problem);
  state.bytes = bytes;
  state.target = target;
}

void* aclgrad_launch_room(LaunchState& state) {
  state.end_call();
  return state.call_room.data();
}

void aclgrad_launch_call(LaunchState& state, CallFunctions functions) {
  if (functions.destroy == nullptr) functions.destroy = state.call.destroy;
  state.call = functions;
}

void aclgrad_launch_refuse_last(LaunchState& state, const char* reason) {
  state.last_refusal = reason;
}

void aclgrad_launch_keep_nothing(LaunchState& state) { state.keeps = false; }

Status aclgrad_check_outputs(const char* op, const uint64_t* workspace_size,
                             aclOpExecutor* const* executor) {
  if (workspace_size == nullptr) {
    return fail(kParamNullptr, "%s: workspaceSize is null; expected a valid pointer", op);
  }
  if (executor != nullptr) return kOk;
  return fail(kParamNullptr, "%s: executor is null; expected a valid pointer", op);
}

Status aclgrad_plan_phase(const char* op, const CallKey* key, uint64_t* workspace_size,
                          aclOpExecutor** executor, Status (*body)(void* context, Launch& launch),
                          void* context) noexcept {
  return guarded(op, kInnerCreateExecutor, [&]() -> Status {
    aclgrad_expect_work();
    // The verbose line names what may change between two calls.
    if (aclgrad_verbose() || (key != nullptr && !key->known)) key = nullptr;
    LaunchStateReference state(take_launch_state(op, key));
    const bool outputs = workspace_size != nullptr && executor != nullptr;
    if (key == nullptr || !outputs || !state->plans(op, *key)) {
      state->clear(op);
      Launch launch(*state);
      if (const Status status = body(context, launch)) return status;
      if (const Status status = check_outputs(op, workspace_size, executor)) return status;
      if (const Status status = finish_plan(*state)) return status;
      if (key != nullptr) state->remember(*key);
    }
    if (const Status status = check_addresses(*state)) return status;
    if (state->last_refusal != nullptr) {
      return fail(kParamInvalid, "%s: %s", op, state->last_refusal);
    }
    if (state->runs() && state->call.run_on_cuda == nullptr && Launch::on_cuda()) {
      return fail(kInnerFindKernel,
                  "%s: there is no CUDA kernel of this operator yet; expected the CPU "
                  "(ACLGRAD_DEVICE=cpu)",
                  op);
    }
    const uint64_t planned = state->planned_size();
    aclOpExecutor* made = create_executor(*state);
    state.give_up();
    *workspace_size = planned;
    *executor = made;
    return kOk;
  });
}

}  // extern "C"
}  // namespace aclgrad
