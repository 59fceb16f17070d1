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
    if (process::exiting() || self->aborted->load(std::memory_order_acquire)) return;
    const DefaultFloatEnvironment environment;
    self->work->run(self->entry->sink());
  };
  const Status status = device_.answer(function, cudaLaunchHostFunc(stream_, run, call.get()));
  if (status == kOk) {
    current_->called = true;
    call.release();
  }
  return status;
}

Status CudaStream::record(const char* function, std::shared_ptr<DevicePoint>& point) {
  std::shared_ptr<Point> made = Point::record(device_, stream_, true);
  if (made == nullptr) {
    if (const Status status = check(function)) return status;
    return fail(ACL_ERROR_RT_NO_EVENT_RESOURCE, "%s: CUDA records no event", function);
  }
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
  if (current_->record == nullptr) current_->record = device_.take_record();
  record = current_->record;
  if (record != nullptr) return kOk;
  return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "%s: no pinned memory for what a kernel reports",
              function);
}

}  // namespace aclgrad::cuda
