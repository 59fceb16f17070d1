// SPDX-License-Identifier: Apache-2.0
// The end of the process: work not started is abandoned, work that runs is waited for, waiting
// threads are let go, the threads of streams are joined.
#ifndef ACLGRAD_RUNTIME_PROCESS_H_
#define ACLGRAD_RUNTIME_PROCESS_H_

#include <atomic>

namespace aclgrad {

namespace process {

extern std::atomic<bool> exit_begun;

// True from the moment the exit handler runs; queues stop then.
inline bool exiting() noexcept { return exit_begun.load(std::memory_order_acquire); }

// Registers the handler (again) so that it runs before the destructors of the static objects that
// exist now: called when the first stream is made, because kernels read memory of such objects.
void watch_exit() noexcept;

}  // namespace process

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_PROCESS_H_
