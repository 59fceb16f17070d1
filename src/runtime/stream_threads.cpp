// SPDX-License-Identifier: Apache-2.0
#include "runtime/stream_threads.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <list>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace aclgrad::stream_threads {
namespace {

struct Thread {
  std::thread handle;
  bool ended = false;  // its function has returned
};

struct Threads {
  std::mutex mutex;
  std::condition_variable one_ended;
  std::list<Thread> list;
  bool closed = false;  // join_all() has begun
};

// Never destroyed, because threads may end while static destructors run; made without memory, which
// those who join cannot be refused.
Threads& threads() noexcept {
  alignas(Threads) static std::byte place[sizeof(Threads)];
  static auto* const made = new (place) Threads;
  return *made;
}

// No signal of the program is handled on such a thread.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    pthread_sigmask(SIG_SETMASK, nullptr, &saved_);
    sigset_t blocked;
    sigfillset(&blocked);
    // What ends a process must find a thread that takes it, even when main has left by
    // pthread_exit.
    for (const int fatal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) {
      if (sigismember(&saved_, fatal) == 0) sigdelset(&blocked, fatal);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t saved_;
};

}  // namespace

void start(std::function<void()> run) {
  join_ended();
  Threads& all = threads();
  std::list<Thread> made(1);
  Thread& thread = made.front();
  // Held until the thread is in the list: it marks its end there.
  const std::lock_guard lock(all.mutex);
  if (all.closed) throw std::system_error(std::make_error_code(std::errc::operation_canceled));
  const SignalsBlocked blocked;
  thread.handle = std::thread([&all, &thread, run = std::move(run)] {
    run();
    const std::lock_guard ending(all.mutex);
    thread.ended = true;
    all.one_ended.notify_all();
  });
  all.list.splice(all.list.end(), made);
}

void join_ended() noexcept {
  Threads& all = threads();
  std::list<Thread> ended;
  {
    const std::lock_guard lock(all.mutex);
    for (auto thread = all.list.begin(); thread != all.list.end();) {
      const auto next = std::next(thread);
      if (thread->ended) ended.splice(ended.end(), all.list, thread);
      thread = next;
    }
  }
  for (Thread& thread : ended) thread.handle.join();
}

void join_all(const Deadline& deadline) noexcept {
  Threads& all = threads();
  {
    std::unique_lock lock(all.mutex);
    all.closed = true;
    all.one_ended.wait_until(lock, deadline.at(), [&] {
      return std::all_of(all.list.begin(), all.list.end(),
                         [](const Thread& thread) { return thread.ended; });
    });
  }
  join_ended();
}

}  // namespace aclgrad::stream_threads
