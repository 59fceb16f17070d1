// SPDX-License-Identifier: Apache-2.0
// What work hands over to a stream of CUDA. With submit_mutex_ held, on the stream's device.
#include <memory>
#include <new>

#include "base/float_environment.h"
#include "runtime/cuda/stream.h"
#include "runtime/process.h"

namespace aclgrad::cuda {

// Ranges may overlap, which CUDA's copies do not allow.
Status CudaStream::copy(const char* function, void* to, const void* from, size_t bytes) {
  const auto copy_range = [&](void* target, const void* source) {
    return device_.answer(function,
                          cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream_));
  };
  const auto target = reinterpret_cast<uintptr_t>(to);
  const auto source = reinterpret_cast<uintptr_t>(from);
  if (target - source >= bytes && source - target >= bytes) return copy_range(to, from);
  void* between = nullptr;
  if (const Status status = take_scratch(function, bytes, between)) return status;
  Status status = copy_range(between, from);
  if (status == kOk) status = copy_range(to, between);
  give_scratch(between);
  return status;
}

Status CudaStream::fill(const char* function, void* to, int32_t value, size_t bytes) {
  return device_.answer(function, cudaMemsetAsync(to, value, bytes, stream_));
}

Status CudaStream::call(const char* function, Work& work) {
  auto call = std::make_unique<HostCall>(HostCall{current_, &work, aborted_});
  const auto run = [](void* data) {
    const std::unique_ptr<HostCall> self(static_cast<HostCall*>(data));
    if (process::exiting() || self->aborted->load(std::memory_order_acquire) ||
        self->entry->refused.load(std::memory_order_acquire)) {
      if (self->entry->gate != nullptr) self->entry->gate->open();
      return;
    }
    const DefaultFloatEnvironment environment;
    self->work->run(self->entry->sink());
  };
  const Status status = device_.answer(function, cudaLaunchHostFunc(stream_, run, call.get()));
  if (status == kOk) {
    current_->called = true;
    static_cast<void>(call.release());  // it is the function's now
  }
  return status;
}

Status CudaStream::make_gate(const char* function, std::shared_ptr<DeviceGate>& gate) {
  gate = nullptr;
  if (!device_.has_gates()) return kOk;
  DeviceRecord* word = nullptr;
  if (const Status status = device_.answer(function, device_.take_record(word))) return status;
  try {
    current_->gate = std::make_shared<Gate>(device_, word);
  } catch (const std::bad_alloc&) {
    device_.give_record(word, device_.age());
    throw;
  }
  gate = current_->gate;
  return kOk;
}

Status CudaStream::hold(const char* function) {
  return device_.answer(function, device_.hold(stream_, current_->gate->word()));
}

Status CudaStream::record(const char* function, std::shared_ptr<DevicePoint>& point) {
  std::shared_ptr<Point> made;
  const cudaError_t error = Point::record(device_, stream_, true, made);
  if (const Status status = device_.answer(function, error)) return status;
  current_->done = made;
  point = std::move(made);
  return kOk;
}

Status CudaStream::await(const char* function, DevicePoint& point) {
  const auto& other = static_cast<Point&>(point);
  if (!other.belongs_to_living_device()) return kOk;  // its work is gone
  return device_.answer(function, cudaStreamWaitEvent(stream_, other.event(), 0));
}

Status CudaStream::launched(const char* function, int error) {
  return device_.answer(function, static_cast<cudaError_t>(error));
}

Status CudaStream::take_scratch(const char* function, size_t bytes, void*& memory) {
  cudaError_t error = cudaMallocAsync(&memory, bytes, stream_);
  if (error == cudaErrorMemoryAllocation) {
    device_.note(error);
    backend().trim();
    error = cudaMallocAsync(&memory, bytes, stream_);
  }
  return device_.answer(function, error);
}

void CudaStream::give_scratch(void* memory) { device_.note(cudaFreeAsync(memory, stream_)); }

Status CudaStream::take_record(const char* function, DeviceRecord*& record) {
  cudaError_t error = cudaSuccess;
  if (current_->record == nullptr) error = device_.take_record(current_->record);
  record = current_->record;
  return device_.answer(function, error);
}

}  // namespace aclgrad::cuda
