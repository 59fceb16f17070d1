// SPDX-License-Identifier: Apache-2.0
// The threads of streams. Each ends by itself and is joined later: by the next that starts, by the
// end of another stream, at the latest by the end of the process. A thread that still ends when
// the process does holds what only it would have freed (glibc's record of a dlopen that failed,
// which oneTBB's first loop leaves to the thread that runs it), and LeakSanitizer reports that.
#ifndef ACLGRAD_RUNTIME_STREAM_THREADS_H_
#define ACLGRAD_RUNTIME_STREAM_THREADS_H_

#include <functional>

#include "runtime/backend.h"

namespace aclgrad::stream_threads {

// Throws std::system_error, also after join_all() has begun, and std::bad_alloc.
void start(std::function<void()> run);

// Joins the threads whose function has returned.
void join_ended() noexcept;

// For the end of the process: waits until the functions of all have returned, or until the
// deadline; then as join_ended(). Nobody would join a thread that starts later, so none does
// (aclrtSynchronizeDevice() in a static destructor hurries streams whose work was abandoned).
void join_all(const Deadline& deadline) noexcept;

}  // namespace aclgrad::stream_threads

#endif  // ACLGRAD_RUNTIME_STREAM_THREADS_H_
