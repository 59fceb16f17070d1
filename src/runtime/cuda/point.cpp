// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>

#include "runtime/cuda/stream.h"

namespace aclgrad::cuda {

cudaError_t Point::record(Device& device, cudaStream_t stream, bool timed,
                          std::shared_ptr<Point>& point) {
  cudaEvent_t event = nullptr;
  cudaError_t error = device.take_event(timed, event);
  if (error != cudaSuccess) return error;
  auto made = std::make_shared<Point>(device, event, timed);
  error = cudaEventRecord(event, stream);
  if (error == cudaSuccess) point = std::move(made);
  return error;
}

Point::State Point::state() {
  if (passed_.load(std::memory_order_acquire)) return State::kPassed;
  if (!belongs_to_living_device()) return State::kFailed;
  // On a thread without a context CUDA would make one, on its first device.
  const DeviceScope scope(device_.number());
  const cudaError_t answer = event_ != nullptr ? cudaEventQuery(event_) : cudaStreamQuery(stream_);
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
  const DeviceScope scope(device_.number());
  device_.note(event_ != nullptr ? cudaEventSynchronize(event_) : cudaStreamSynchronize(stream_));
}

int64_t Point::nanoseconds_to(DevicePoint& later) {
  const auto& other = static_cast<Point&>(later);
  float milliseconds = 0.0f;
  const bool one_device =
      &device_ == &other.device_ && belongs_to_living_device() && other.belongs_to_living_device();
  const DeviceScope scope(device_.number());
  if (!one_device || cudaEventElapsedTime(&milliseconds, event_, other.event_) != cudaSuccess) {
    return later.nanoseconds() - nanoseconds();
  }
  return static_cast<int64_t>(std::llround(static_cast<double>(milliseconds) * 1e6));
}

}  // namespace aclgrad::cuda
