// SPDX-License-Identifier: Apache-2.0
// What a Launch holds: the plan that an executor owns and its runs read. Recycled, because clearing
// a few counts is cheaper than allocating eight kilobytes for each call of an operator.
#ifndef ACLGRAD_TENSOR_LAUNCH_STATE_H_
#define ACLGRAD_TENSOR_LAUNCH_STATE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>

#include "runtime/work.h"
#include "tensor/call_key.h"
#include "tensor/launch.h"
#include "tensor/tensor.h"

namespace aclgrad {

struct alignas(64) PlannedOperand {
  // A line of what phase two reads: after an idle time every line takes a tenth of a microsecond.
  const aclTensor* handle;           // null: absent
  void* data;                        // the storage's base in phase one
  HandleTable<Tensor>::Place place;  // where the handle leads
  int64_t first;                     // bytes from the storage's base to element (0, 0, ...)
  int64_t low;                       // bytes from the storage's base to the lowest byte of the view
  int64_t high;                      // and behind its highest
  uint32_t version;                  // of the tensor's description in phase one
  uint32_t in_place_inputs;          // of an output: bit i = it may be the very view of operand i
  Role role;
  bool touched;  // has elements that the call reads or writes
  bool packed;
  // Of an output: whether indices share addresses, or could not be told cheaply. The second kind is
  // packed, and unpacked by one thread in a fixed order.
  bool self_overlapping;
  bool sequential;

  int64_t elements;
  View view;         // the operand's own
  const char* name;  // as registered
  int64_t storage_elements;
  int64_t packed_at;  // bytes from the workspace's aligned start to the packed copy

  // Calls read(tensor); false when it is not, or no longer, alive. See HandleTable.
  template <class Read>
  bool read(Read&& read) const {
    return HandleTable<Tensor>::read_at(place, handle, read);
  }
  bool is_output() const { return role == Role::kOutput || role == Role::kUnusedOutput; }
};

using Addresses = std::array<void*, kMaxOperands>;

// One run in a stream's queue. One is part of the state, so that phase two allocates nothing; those
// of a repeatable executor that are queued besides come from the heap.
class LaunchWork final : public Work {
 public:
  LaunchWork(LaunchState& state, bool embedded) : state_(state), embedded_(embedded) {}
  ~LaunchWork() override { release_scratch(); }
  LaunchWork(const LaunchWork&) = delete;
  LaunchWork& operator=(const LaunchWork&) = delete;

  void run(DataErrors& errors) noexcept override;
  Status submit(const char* function, DeviceQueue& queue) override;
  void finish(DataErrors& errors) noexcept override;

  // The storages' addresses. Bit i of `copies`: output i is computed apart and copied at the end.
  // `planned`: the addresses are those of the plan. Throws nothing; false without memory for the
  // copies.
  bool bind(const Addresses& bases, void* workspace, uint32_t copies, bool planned) noexcept;

  // Of a plan that runs again and again with this workspace: it was found right while the
  // allocations had changed so often.
  bool knows(const void* workspace, uint64_t changes) const {
    return bound_ && known_workspace_ == workspace && known_changes_ == changes;
  }
  void note_known(const void* workspace, uint64_t changes) {
    known_workspace_ = workspace;
    known_changes_ = changes;
  }
  // The plan, or one of its addresses, is another one.
  void forget() { bound_ = false; }

  // Whatever deletes a run gives back its reference to the state; the embedded one stays in place.
  static void operator delete(LaunchWork* work, std::destroying_delete_t) noexcept;

 private:
  void pack_inputs() const;
  void write_outputs() const;
  Status prepare_call(const char* function, DeviceQueue& queue, const CudaQueue& cuda);
  Status hand_over(const char* function, DeviceQueue& queue, const CudaQueue& cuda);
  void print_line(int64_t nanoseconds) const noexcept;
  void* packed_address(const PlannedOperand& operand) const;
  void place_scratch(size_t operand);
  void release_scratch() noexcept;

  LaunchState& state_;
  bool embedded_;
  bool apart_ = false;  // some operands are packed or copied
  bool bound_ = false;  // to the addresses of the plan and to this workspace, without copies
  const void* bound_workspace_ = nullptr;
  const void* known_workspace_ = nullptr;
  uint64_t known_changes_ = 0;
  uint32_t copies_ = 0;
  uintptr_t workspace_ = 0;  // aligned
  Run run_;                  // what the call is given
  // Only the entries of packed and copied operands, and of `copies_`, are set.
  Addresses addresses_;  // of element (0, 0, ...)
  Addresses scratch_;
  // On a GPU: what its kernels report, and the time they took where it is asked for.
  DeviceRecord* record_ = nullptr;
  std::shared_ptr<DevicePoint> begin_, end_;
};

// A state keeps its plan when its executor is gone: phase one with the same arguments finds it, and
// checks only what may have changed.
struct LaunchState {
  const char* op = "";
  CallKey key;            // of the plan
  bool complete = false;  // the plan is what its key leads to
  bool keeps = true;      // may become complete
  uint64_t hash = 0;      // of the key; where the state waits
  size_t operand_count = 0;
  size_t region_count = 0;
  int64_t workspace = 0;  // bytes booked so far, a multiple of 64; then the planned size
  const char* last_refusal = nullptr;  // of phase one, behind all checks
  // How many hold it, and kOwnWork while the queued runs of a repeatable executor have `work`.
  std::atomic<uint32_t> references{1};
  bool too_large = false;
  // Phase one knew all addresses and found them right, with these copies, while the allocations had
  // changed this often: phase two need not look again at what did not change since.
  bool verified = false;
  uint32_t verified_copies = 0;
  uint64_t verified_changes = 0;
  std::array<PlannedOperand, kMaxOperands> operands;
  std::array<int64_t, kMaxRegions> regions;  // from the workspace's aligned start
  CallFunctions call;
  alignas(std::max_align_t) std::array<std::byte, kCallBytes> call_room;
  std::string problem;
  double bytes = 0;
  const char* target = nullptr;
  LaunchState* next_spare = nullptr;
  LaunchWork work{*this, true};

  static constexpr uint32_t kOwnWork = uint32_t{1} << 31;

  bool runs() const { return call.run != nullptr; }
  // Empty again, for another plan.
  void clear(const char* new_op) noexcept;
  void remember(const CallKey& new_key) noexcept;
  // The plan is right for these arguments as they are now. Addresses are taken over as they are:
  // verified only where they are those of before.
  bool plans(const char* new_op, const CallKey& new_key) noexcept;

  const PlannedOperand& operand(int index) const { return operands[static_cast<size_t>(index)]; }
  uint64_t planned_size() const { return static_cast<uint64_t>(workspace); }
  void end_call() noexcept {
    if (call.destroy != nullptr) call.destroy(call_room.data());
    call = {};
  }
  void retain() noexcept { references.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept { give_back(1); }
  // `work` and one reference, for a run of a repeatable executor, which several threads may queue
  // at once; false while another run has it.
  bool take_own_work() noexcept {
    uint32_t seen = references.load(std::memory_order_relaxed);
    do {
      if ((seen & kOwnWork) != 0) return false;
    } while (!references.compare_exchange_weak(
        seen, (seen | kOwnWork) + 1, std::memory_order_acquire, std::memory_order_relaxed));
    return true;
  }
  // The reference of whoever has `work`, and that again if it was taken.
  void release_own_work() noexcept {
    give_back(1 + (references.load(std::memory_order_relaxed) & kOwnWork));
  }

 private:
  void give_back(uint32_t share) noexcept;
};

// Made anew or recycled, with one reference; with the plan of the key where it is at hand (`key`
// may be null). Throws std::bad_alloc.
LaunchState* take_launch_state(const char* op, const CallKey* key);

// Holds one reference.
class LaunchStateReference {
 public:
  explicit LaunchStateReference(LaunchState* state) : state_(state) {}
  LaunchStateReference(const LaunchStateReference&) = delete;
  LaunchStateReference& operator=(const LaunchStateReference&) = delete;
  ~LaunchStateReference() {
    if (state_ != nullptr) state_->release();
  }
  LaunchState& operator*() const { return *state_; }
  LaunchState* operator->() const { return state_; }
  LaunchState* get() const { return state_; }
  LaunchState* give_up() { return std::exchange(state_, nullptr); }

 private:
  LaunchState* state_;
};

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_LAUNCH_STATE_H_
