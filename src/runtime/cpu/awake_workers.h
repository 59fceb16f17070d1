// SPDX-License-Identifier: Apache-2.0
// How many workers of CPU streams are awake. Waking one takes its waker 7 to 20 us, most of it
// the kernel's, which is cold after an idle time. So the first call that announces work to a
// process of which every worker sleeps (phase one) wakes the one that fell asleep last, most likely
// the one of the stream that phase two names. (A worker may sleep while a thread that synchronises
// does its work, and is then woken in vain.)
#ifndef ACLGRAD_RUNTIME_CPU_AWAKE_WORKERS_H_
#define ACLGRAD_RUNTIME_CPU_AWAKE_WORKERS_H_

#include <memory>

namespace aclgrad {

class CpuStream;

namespace awake_workers {

// Both with the stream's lock held. `stream`: of a worker that can be woken.
void note_awake() noexcept;
void note_asleep(std::weak_ptr<CpuStream> stream) noexcept;

// A load of one word unless all sleep.
void expect_work() noexcept;

}  // namespace awake_workers
}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_CPU_AWAKE_WORKERS_H_
