// SPDX-License-Identifier: Apache-2.0
// What libascendcl offers the floors above it, beyond the contract: queueing of work, and knowledge
// of which addresses lie in which allocation.
#ifndef ACLGRAD_RUNTIME_SERVICES_H_
#define ACLGRAD_RUNTIME_SERVICES_H_

#include <cstddef>
#include <cstdint>

#include "acl/acl_base.h"
#include "base/status.h"
#include "runtime/work.h"

namespace aclgrad {

enum class AddressKind : uint8_t {
  kUnknown,     // memory the library knows nothing of (a NumPy array)
  kDevice,      // inside a live device allocation
  kHost,        // inside a live aclrtMallocHost allocation
  kDeadDevice,  // inside the range reserved for device memory, but in no live allocation
  kDeadHost,    // the same for pinned host memory
  // Where devices have memory of their own, kUnknown is memory of both sides, and there are: memory
  // that is no device's (a NumPy array, or what was freed), and a device's and pinned host memory
  // of somebody else.
  kPageable,
  kForeignDevice,
  kForeignHost,
};

// The live allocation an address lies in; begin and size are 0 unless the kind is kDevice or kHost.
struct Allocation {
  AddressKind kind = AddressKind::kUnknown;
  uintptr_t begin = 0;
  size_t size = 0;  // as every range check counts it: rounded up to 32, plus 32
};

class AddressUse;

extern "C" {
// Wait-free in practice (sequence lock): about 10 ns with 1,000 live allocations.
[[gnu::visibility("default")]] Allocation aclgrad_find_allocation(const void* address) noexcept;

// Grows with every change of the live allocations: while it stays the same, what
// aclgrad_find_allocation answered holds.
[[gnu::visibility("default")]] uint64_t aclgrad_allocation_changes() noexcept;

// The same for the allocation that begins there, and seldom for others: while it stays what it was
// before an answer that named this begin, the answer holds.
[[gnu::visibility("default")]] uint64_t aclgrad_allocation_changes_at(uintptr_t begin) noexcept;

// 0 when `stream` is a live stream (or null and the thread has a current context); otherwise
// kParamInvalid (107002 for a null stream without a context) and a message that begins with
// `function`.
[[gnu::visibility("default")]] Status aclgrad_check_stream(const char* function,
                                                           aclrtStream stream) noexcept;

// Whether work on `stream` may use memory at these addresses, as far as they lie on other devices:
// the first that it may not use, `count` when there is none or the stream is not there.
[[gnu::visibility("default")]] size_t aclgrad_first_out_of_reach(aclrtStream stream,
                                                                 const void* const* addresses,
                                                                 size_t count) noexcept;

// Queues work behind everything queued on `stream` so far (null: the current default stream) and
// returns at once. Takes ownership of `work` in every case, refusals included. Under
// ASCEND_LAUNCH_BLOCKING=1 it returns after the work ran, with kRuntimeError if it reported an
// error; `use` (may be null) ends before that wait.
[[gnu::visibility("default")]] Status aclgrad_enqueue(const char* function, aclrtStream stream,
                                                      Work* work, AddressUse* use) noexcept;

// Phase one, before it looks at anything: work will come soon.
[[gnu::visibility("default")]] void aclgrad_expect_work() noexcept;

// A call that was given addresses: from before their check until their work is queued. Memory that
// another thread frees meanwhile is not released before. See AddressUse.
[[gnu::visibility("default")]] size_t aclgrad_begin_use() noexcept;
[[gnu::visibility("default")]] void aclgrad_end_use(size_t slot) noexcept;

// Streams run work on a device's own queue (Work::submit), not on threads of the host.
[[gnu::visibility("default")]] bool aclgrad_has_device_queues() noexcept;

// Gives all memory back that is kept for later. For tests.
[[gnu::visibility("default")]] void aclgrad_make_room() noexcept;

// Device memory for the library's own use inside tasks, where devices have no queues; null when
// there is none. Not in the map of live allocations.
[[gnu::visibility("default")]] void* aclgrad_allocate_scratch(size_t bytes) noexcept;
[[gnu::visibility("default")]] void aclgrad_free_scratch(void* memory) noexcept;
}

// One at a time in a thread. A call that waits for its work ends it before: there are only so many.
class AddressUse {
 public:
  AddressUse() : slot_(aclgrad_begin_use()) {}
  ~AddressUse() { end(); }
  AddressUse(const AddressUse&) = delete;
  AddressUse& operator=(const AddressUse&) = delete;

  void end() {
    if (!ended_) aclgrad_end_use(slot_);
    ended_ = true;
  }

 private:
  size_t slot_;
  bool ended_ = false;
};

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_SERVICES_H_
