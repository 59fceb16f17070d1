// SPDX-License-Identifier: Apache-2.0
// Device and pinned host memory: which allocations live, and when a freed one may be released.
//
// Every piece of work carries the ticket that was current when it was queued; every free takes the
// current ticket as its stamp and makes the next one current. Memory is released when no work with
// a ticket up to the stamp is left in any stream. Queueing costs one load that way.
//
// Between the check of an address and the queueing of the work (or a copy's end) stands a use: it
// holds the ticket that was current when it began, and counts like work. Another thread's free in
// between is either seen by the check, or waits.
#ifndef ACLGRAD_RUNTIME_MEMORY_H_
#define ACLGRAD_RUNTIME_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "runtime/backend.h"
#include "runtime/services.h"

namespace aclgrad::memory {

// The size that counts in every range check: rounded up to 32, plus 32. 0 when it overflows.
size_t padded_size(size_t size) noexcept;

// Refuses with 207001, or stores the new allocation's address.
Status allocate(const char* function, int32_t device, MemorySpace space, size_t size, void** out);
// A live allocation went with its device: from now on it is dead, and only to be released.
void lose(MemorySpace space, void* address) noexcept;
// Refuses with 100000 what is no live allocation's start. Never blocks.
Status release(const char* function, MemorySpace space, void* address) noexcept;

Allocation find(const void* address) noexcept;

// Of the calling thread's use, if it has begun one.
uint64_t current_ticket() noexcept;
size_t begin_use() noexcept;
void end_use(size_t slot) noexcept;

// Releases freed memory that no queued work names any more. The first two cost one load when
// nothing had to wait, the second one also when it is little, which then waits for the next
// allocation.
void reclaim_if_deferred() noexcept;
void reclaim_if_much() noexcept;
void reclaim() noexcept;

}  // namespace aclgrad::memory

#endif  // ACLGRAD_RUNTIME_MEMORY_H_
