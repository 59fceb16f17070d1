// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "runtime/cuda/stream.h"

namespace aclgrad::cuda {

std::shared_ptr<Point> Point::record(Device& device, cudaStream_t stream, bool timed) {
  const cudaEvent_t event = device.take_event(timed);
  if (event == nullptr) return nullptr;
  auto point = std::make_shared<Point>(device, event, timed);
  const cudaError_t error = cudaEventRecord(event, stream);
  if (error == cudaSuccess) return point;
  device.note(error);
  return nullptr;
}

Point::State Point::state() {
  if (passed_.load(std::memory_order_acquire)) return State::kPassed;
  if (!belongs_to_living_device()) return State::kFailed;
  const cudaError_t answer = cudaEventQuery(event_);
  if (answer == cudaErrorNotReady) return device_.failed() ? State::kFailed : State::kAhead;
  if (answer != cudaSuccess) {
    device_.note(answer);
    return State::kFailed;
  }
  passed_.store(true, std::memory_order_release);
  return State::kPassed;
}

void Point::wait() {
  if (state() != State::kAhead) return;
  device_.note(cudaEventSynchronize(event_));
}

int64_t Point::nanoseconds_to(DevicePoint& later) {
  const auto& other = static_cast<Point&>(later);
  float milliseconds = 0.0f;
  const bool one_device =
      &device_ == &other.device_ && belongs_to_living_device() && other.belongs_to_living_device();
  if (!one_device || cudaEventElapsedTime(&milliseconds, event_, other.event_) != cudaSuccess) {
    return later.nanoseconds() - nanoseconds();
  }
  return static_cast<int64_t>(std::llround(static_cast<double>(milliseconds) * 1e6));
}

}  // namespace aclgrad::cuda
