// SPDX-License-Identifier: Apache-2.0
// The emulated streams. Calls take effect as late as CUDA allows: copies happen in their stream,
// never when they are called.
#ifndef ACLGRAD_TESTS_CUDA_EMULATED_STREAMS_H_
#define ACLGRAD_TESTS_CUDA_EMULATED_STREAMS_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "cuda_runtime.h"

// An in-order queue and the thread that runs it.
struct CUstream_st {
  explicit CUstream_st(int number) : device(number) {}

  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    changed.notify_all();
  }
  void synchronize() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return tasks.empty() && !running; });
  }
  bool idle() {
    const std::lock_guard lock(mutex);
    return tasks.empty() && !running;
  }
  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    changed.notify_all();
  }
  static void run(const std::shared_ptr<CUstream_st>& self) {
    std::unique_lock lock(self->mutex);
    for (;;) {
      self->changed.wait(lock, [&] { return !self->tasks.empty() || self->closed; });
      if (self->tasks.empty()) return;
      const std::function<void()> task = std::move(self->tasks.front());
      self->tasks.pop_front();
      self->running = true;
      lock.unlock();
      task();
      lock.lock();
      self->running = false;
      self->changed.notify_all();
    }
  }

  const int device;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool running = false;
  bool closed = false;
  std::shared_ptr<CUstream_st> self;
};

namespace emulated {

// Gives the stream something to do, or answers why not.
cudaError_t queue(cudaStream_t stream, std::function<void()> task);

// Waits for what the streams of a device have.
void drain(int device);

}  // namespace emulated

#endif  // ACLGRAD_TESTS_CUDA_EMULATED_STREAMS_H_
