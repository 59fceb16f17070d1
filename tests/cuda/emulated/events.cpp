// SPDX-License-Identifier: Apache-2.0
// The emulated events. A record is done when its stream has come to it.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "answers.h"
#include "cuda_runtime.h"
#include "devices.h"
#include "streams.h"

using Clock = std::chrono::steady_clock;
using emulated::answer_first;
using emulated::current_device;
using emulated::need_context;
using emulated::noted;
using emulated::queue;
using emulated::sticky;

// The last record that was called, and the last one that ran.
struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t called = 0;
  uint64_t done = 0;
  Clock::time_point at;

  void wait(uint64_t record) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done >= record; });
  }
};
struct CUevent_st {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
  int device = 0;
  bool timed = true;
};

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t error = answer_first()) return error;
  *event = new CUevent_st;
  (*event)->device = current_device();
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  uint64_t record = 0;
  {
    const std::lock_guard lock(event->state->mutex);
    record = ++event->state->called;
  }
  return queue(stream, [state = event->state, record] {
    const std::lock_guard lock(state->mutex);
    state->done = record;
    state->at = Clock::now();
    state->changed.notify_all();
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  uint64_t record = 0;
  {
    const std::lock_guard lock(event->state->mutex);
    record = event->state->called;
  }
  return queue(stream, [state = event->state, record] { state->wait(record); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  need_context();
  if (const cudaError_t error = noted(sticky(event->device))) return error;
  const std::lock_guard lock(event->state->mutex);
  return event->state->done == event->state->called ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  need_context();
  uint64_t record = 0;
  {
    const std::lock_guard lock(event->state->mutex);
    record = event->state->called;
  }
  event->state->wait(record);
  return noted(sticky(event->device));
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  need_context();
  if (!start->timed || !end->timed) return cudaErrorInvalidResourceHandle;
  const std::scoped_lock lock(start->state->mutex);
  const Clock::time_point from = start->state->at;
  Clock::time_point to = from;
  if (start != end) {
    const std::lock_guard second(end->state->mutex);
    to = end->state->at;
  }
  *ms = std::chrono::duration<float, std::milli>(to - from).count();
  return cudaSuccess;
}

}  // extern "C"
