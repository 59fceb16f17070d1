// SPDX-License-Identifier: Apache-2.0
#include "tensor/addresses.h"

#include <algorithm>
#include <bit>

#include "base/dtype.h"
#include "runtime/services.h"
#include "tensor/overlap.h"

namespace aclgrad {
namespace {

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

// What was found for addresses before, good until the allocations change: programs call operators
// on the same tensors again and again. A thread's own, so without locks.
class RecentAllocations {
 public:
  const Allocation& find(const void* address, uint64_t changes) {
    Pair& pair = pairs_[slot(number(address))];
    for (Entry& entry : pair) {
      if (entry.address != address) continue;
      if (entry.changes == changes) return entry.allocation;
      // Others came and went, this one stayed.
      if (entry.allocation.size > 0 &&
          entry.changes_at == aclgrad_allocation_changes_at(entry.allocation.begin)) {
        return entry.allocation;
      }
      return look_up(entry, address, changes);
    }
    pair[1] = pair[0];
    return look_up(pair[0], address, changes);
  }

 private:
  // Of an operator's ten tensors three in one place would have to be looked up in every call; with
  // 64 pairs that is one set of tensors in forty.
  static constexpr size_t kBits = 6;
  struct Entry {
    const void* address = nullptr;  // never looked up
    uint64_t changes = 0;
    uint64_t changes_at = 0;  // of a live allocation
    Allocation allocation;
  };
  using Pair = std::array<Entry, 2>;
  static const Allocation& look_up(Entry& entry, const void* address, uint64_t changes) {
    entry = Entry{address, changes, 0, aclgrad_find_allocation(address)};
    if (entry.allocation.size == 0) return entry.allocation;
    // Where to count is part of the answer, and the count has to come before it.
    const uintptr_t begin = entry.allocation.begin;
    entry.changes_at = aclgrad_allocation_changes_at(begin);
    entry.allocation = aclgrad_find_allocation(address);
    if (entry.allocation.begin != begin) entry.address = nullptr;  // look again next time
    return entry.allocation;
  }
  // Fibonacci hashing: allocations often differ in a few middle bits only.
  static size_t slot(uintptr_t address) {
    return static_cast<size_t>((uint64_t{address} * 0x9E3779B97F4A7C15u) >> (64 - kBits));
  }
  std::array<Pair, size_t{1} << kBits> pairs_{};
};
constinit thread_local RecentAllocations recent_allocations;

std::string strides_text(const View& view) {
  return shape_text(view.strides.data(), static_cast<uint64_t>(view.rank));
}
std::string dims_text(const View& view) {
  return shape_text(view.dims.data(), static_cast<uint64_t>(view.rank));
}

Status refuse_memory(const char* op, const char* name, const void* address, AddressKind kind) {
  const char* what = "memory that is freed or was never allocated";
  if (kind == AddressKind::kHost) what = "pinned host memory (aclrtMallocHost)";
  if (kind == AddressKind::kForeignHost) what = "pinned host memory";
  if (kind == AddressKind::kPageable) what = "memory of the host, or memory that is freed";
  return fail(kParamInvalid, "%s: %s is at %p in %s; expected live device memory", op, name,
              address, what);
}

// Both sizes: what the view reaches and what there is.
Status refuse_range(const char* op, const PlannedOperand& operand, const char* holder,
                    long long from, long long size) {
  return fail(kParamInvalid,
              "%s: %s with shape %s, strides %s and dtype %s reaches bytes [%lld, %lld) from its "
              "address, %lld bytes; expected them inside [%lld, %lld), the %lld bytes of %s",
              op, operand.name, dims_text(operand.view).c_str(), strides_text(operand.view).c_str(),
              dtype_name(operand.view.dtype), static_cast<long long>(operand.low),
              static_cast<long long>(operand.high),
              static_cast<long long>(operand.high - operand.low), from, from + size, size, holder);
}

Status check_in_allocation(const char* op, const PlannedOperand& operand, uintptr_t base,
                           const Allocation& allocation) {
  // Within a live allocation addresses and sizes are small enough for signed arithmetic.
  const auto from = static_cast<int64_t>(allocation.begin - base);
  const auto size = static_cast<int64_t>(allocation.size);
  if (operand.low >= from && operand.high <= from + size) return kOk;
  return refuse_range(op, operand, "its allocation", from, size);
}

// Memory of the program's own: the storage dims are all that is known of its size.
Status check_in_storage(const char* op, const PlannedOperand& operand, uintptr_t base) {
  int64_t size = 0;
  if (operand.storage_elements >= 0 &&
      !__builtin_mul_overflow(operand.storage_elements,
                              static_cast<int64_t>(dtype_size(operand.view.dtype)), &size) &&
      (operand.low < 0 || operand.high > size)) {
    return refuse_range(op, operand, "its storage dims", 0, size);
  }
  uintptr_t low = 0;
  uintptr_t last = 0;
  if (__builtin_add_overflow(base, operand.low, &low) ||
      __builtin_add_overflow(base, operand.high - 1, &last)) {
    return fail(kParamInvalid,
                "%s: %s reaches bytes [%lld, %lld) from its address %p; expected "
                "bytes inside the address space",
                op, operand.name, static_cast<long long>(operand.low),
                static_cast<long long>(operand.high), reinterpret_cast<void*>(base));
  }
  for (const uintptr_t end : {low, last}) {
    if (end == base) continue;
    const AddressKind kind = aclgrad_find_allocation(reinterpret_cast<const void*>(end)).kind;
    if (kind != AddressKind::kDevice && kind != AddressKind::kHost &&
        kind != AddressKind::kDeadDevice && kind != AddressKind::kDeadHost) {
      continue;
    }
    return fail(kParamInvalid,
                "%s: %s is at %p outside this library's memory and reaches bytes [%lld, %lld) "
                "from there, into it; expected a view inside one allocation",
                op, operand.name, reinterpret_cast<void*>(base),
                static_cast<long long>(operand.low), static_cast<long long>(operand.high));
  }
  return kOk;
}

struct Placed {
  const PlannedOperand* operand;
  uintptr_t first;  // address of element (0, 0, ...)
  uintptr_t low;
  uintptr_t high;
};

Placed place(const PlannedOperand& operand, const void* base) {
  const auto at = [&](int64_t bytes) { return number(base) + static_cast<uintptr_t>(bytes); };
  return Placed{&operand, at(operand.first), at(operand.low), at(operand.high)};
}

Status refuse_overlap(const char* op, const PlannedOperand& output, const PlannedOperand& other) {
  if (other.is_output()) {
    return fail(kParamInvalid, "%s: %s overlaps %s; expected outputs that share no byte", op,
                output.name, other.name);
  }
  const char* exception = (output.in_place_inputs != 0)
                              ? " or is the very same view (address, strides, shape, dtype)"
                              : "";
  return fail(kParamInvalid,
              "%s: %s overlaps %s; expected an output that shares no byte with an input%s", op,
              output.name, other.name, exception);
}

// `index` is that of `other` among the operands.
Status check_pair(const char* op, const Placed& output, size_t output_index, const Placed& other,
                  size_t index, uint32_t& copies) {
  if ((output.operand->in_place_inputs >> index & 1) != 0 && output.first == other.first) {
    return kOk;
  }
  switch (views_overlap(output.operand->view, output.first, other.operand->view, other.first)) {
    case Overlap::kNo:
      return kOk;
    case Overlap::kYes:
      return refuse_overlap(op, *output.operand, *other.operand);
    case Overlap::kUndecided:
      break;
  }
  // A packed output is written when the call is over, which is as good as a copy apart.
  if (!output.operand->packed) copies |= uint32_t{1} << output_index;
  return kOk;
}

// A GPU takes no other addresses, and fails for good when it meets one.
Status check_alignment(const char* op, const PlannedOperand& operand, uintptr_t base) {
  constexpr size_t kMost = 8;
  const size_t unit = std::min(dtype_size(operand.view.dtype), kMost);
  if ((base + static_cast<uintptr_t>(operand.first)) % unit == 0) return kOk;
  return fail(kParamInvalid, "%s: %s begins at %p; expected a multiple of %zu bytes on a GPU", op,
              operand.name, reinterpret_cast<void*>(base + static_cast<uintptr_t>(operand.first)),
              unit);
}

}  // namespace

Status check_ranges(const LaunchState& state, const Addresses& bases, uint64_t changes) {
  const bool on_gpu = aclgrad_has_device_queues();
  RecentAllocations& recent = recent_allocations;
  for (size_t i = 0; i < state.operand_count; ++i) {
    if (!state.operands[i].touched || bases[i] == nullptr) continue;
    const PlannedOperand& operand = state.operands[i];
    const uintptr_t base = number(bases[i]);
    const Allocation& allocation = recent.find(bases[i], changes);
    Status status = kOk;
    switch (allocation.kind) {
      case AddressKind::kDevice:
        status = check_in_allocation(state.op, operand, base, allocation);
        break;
      case AddressKind::kUnknown:
      case AddressKind::kForeignDevice:
        status = check_in_storage(state.op, operand, base);
        break;
      default:
        status = refuse_memory(state.op, operand.name, bases[i], allocation.kind);
    }
    if (status == kOk && on_gpu) status = check_alignment(state.op, operand, base);
    if (status != kOk) return status;
  }
  return kOk;
}

Status check_overlaps(const LaunchState& state, const Addresses& bases, uint32_t& copies) {
  std::array<Placed, kMaxOperands> placed;
  uint32_t present = 0;
  for (size_t i = 0; i < state.operand_count; ++i) {
    const bool is_present = state.operands[i].touched && bases[i] != nullptr;
    placed[i] = is_present ? place(state.operands[i], bases[i]) : Placed{};
    present |= uint32_t{is_present} << i;
  }
  for (size_t i = 0; i < state.operand_count; ++i) {
    if ((present >> i & 1) == 0 || state.operands[i].role != Role::kOutput) continue;
    // Nearly all lie apart: found without a branch for each.
    uint32_t near = 0;
    uint32_t bit = 1;
    for (size_t j = 0; j < state.operand_count; ++j, bit += bit) {
      const int apart = int{placed[i].high <= placed[j].low} | int{placed[j].high <= placed[i].low};
      near |= apart != 0 ? 0 : bit;
    }
    near &= present & ~(uint32_t{1} << i);
    for (; near != 0; near &= near - 1) {
      const auto j = static_cast<size_t>(std::countr_zero(near));
      // Two outputs are compared once.
      if (j < i && state.operands[j].role == Role::kOutput) continue;
      if (const Status status = check_pair(state.op, placed[i], i, placed[j], j, copies)) {
        return status;
      }
    }
  }
  return kOk;
}

Status check_workspace(const LaunchState& state, const Addresses& bases, const void* workspace,
                       uint64_t changes) {
  const uint64_t size = state.planned_size();
  const Allocation allocation = recent_allocations.find(workspace, changes);
  const uintptr_t begin = number(workspace);
  if (allocation.kind == AddressKind::kDevice) {
    const uintptr_t behind = allocation.begin + allocation.size - begin;
    if (size > behind) {
      return fail(kParamInvalid,
                  "%s: workspace has %llu bytes up to the end of its allocation; expected %llu",
                  state.op, static_cast<unsigned long long>(behind),
                  static_cast<unsigned long long>(size));
    }
  } else if (allocation.kind != AddressKind::kUnknown &&
             allocation.kind != AddressKind::kForeignDevice) {
    return refuse_memory(state.op, "workspace", workspace, allocation.kind);
  }
  View bytes{ACL_UINT8, 1, {static_cast<int64_t>(size)}, {1}};
  for (size_t i = 0; i < state.operand_count; ++i) {
    if (!state.operands[i].touched) continue;
    const Placed tensor = place(state.operands[i], bases[i]);
    if (tensor.high <= begin || begin + size <= tensor.low) continue;
    if (views_overlap(bytes, begin, tensor.operand->view, tensor.first) == Overlap::kNo) continue;
    return fail(kParamInvalid,
                "%s: workspace of %llu bytes at %p overlaps %s; expected memory of its own",
                state.op, static_cast<unsigned long long>(size), workspace, tensor.operand->name);
  }
  return kOk;
}

Status check_reach(const LaunchState& state, const Addresses& bases, const void* workspace,
                   aclrtStream stream) {
  std::array<const void*, kMaxOperands + 1> addresses{};
  for (size_t i = 0; i < state.operand_count; ++i) {
    addresses[i] = state.operands[i].touched ? bases[i] : nullptr;
  }
  if (state.planned_size() > 0) addresses[state.operand_count] = workspace;
  const size_t count = state.operand_count + 1;
  const size_t found = aclgrad_first_out_of_reach(stream, addresses.data(), count);
  if (found == count) return kOk;
  return fail(kParamInvalid,
              "%s: %s is at %p in memory of another device than the stream's; expected memory of "
              "that device, or aclrtDeviceEnablePeerAccess on it before",
              state.op, found < state.operand_count ? state.operands[found].name : "workspace",
              addresses[found]);
}

}  // namespace aclgrad
