// SPDX-License-Identifier: Apache-2.0
// The GPUs of CUDA as devices. Where there is no driver, or no GPU of compute capability 8.0, there
// is no such backend; nothing here needs a library of CUDA to be there when this one is loaded.
#include "runtime/backend.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "runtime/context.h"
#include "runtime/cpu/machine.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/stream.h"
#include "runtime/memory.h"
#include "runtime/settings.h"

namespace aclgrad {
namespace cuda {
namespace {

constexpr int kLeastCapability = 8;

// Of freed blocks an eighth of the smallest device's memory is kept.
constexpr size_t kKeptShare = 8;

int attribute(const Device& device, cudaDeviceAttr which) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, device.number()) == cudaSuccess ? value : 0;
}

using Devices = std::vector<std::unique_ptr<Device>>;

// Why there is no usable device.
char refusal[256] = "no GPU has compute capability 8.0 or more";

Devices usable_devices() {
  Devices devices;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    std::snprintf(refusal, sizeof refusal, "%s: %s", cudaGetErrorName(error),
                  cudaGetErrorString(error));
    cudaGetLastError();
    return devices;
  }
  for (int i = 0; i < std::min(count, kMostDevices); ++i) {
    // Unlike cudaMemGetInfo() this makes no context on devices that nobody uses.
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    if (properties.major < kLeastCapability) continue;
    devices.push_back(std::make_unique<Device>(i, properties.totalGlobalMem));
  }
  return devices;
}

size_t least_memory(const Devices& devices) {
  size_t least = SIZE_MAX;
  for (const auto& device : devices) least = std::min(least, device->total_memory());
  return least;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(Devices devices)
      : devices_(std::move(devices)), memory_(least_memory(devices_) / kKeptShare) {
    for (const auto& device : devices_) device_total_ += device->total_memory();
  }

  bool has_queues() const noexcept override { return true; }
  int32_t devices() const noexcept override { return static_cast<int32_t>(devices_.size()); }

  Status make_stream(const char* function, int32_t device,
                     std::shared_ptr<Stream>& stream) override;

  void* allocate(int32_t device, MemorySpace space, size_t bytes,
                 Shortage& shortage) noexcept override;
  void release(MemorySpace, void* memory, size_t) noexcept override { memory_.release(memory); }
  bool trim() noexcept override {
    const CudaStream::Pause pause;
    const bool all = memory_.trim();
    for (const auto& device : devices_) device->trim();
    return all;
  }
  bool may_hold(MemorySpace, uintptr_t) const noexcept override { return true; }
  AddressKind foreign_kind(const void* address) noexcept override;

  Status copy(const char* function, void* to, const void* from, size_t bytes) noexcept override;
  Status fill(const char* function, void* to, int32_t value, size_t bytes) noexcept override;

  size_t total_memory(MemorySpace space) noexcept override {
    return space == MemorySpace::kDevice ? device_total_ : host_total_;
  }
  bool spaces_share_memory() const noexcept override { return false; }
  size_t most_memory(int32_t device, MemorySpace space) noexcept override {
    return space == MemorySpace::kDevice ? at(device).total_memory() : host_total_;
  }
  Status memory_info(const char* function, int32_t device, MemoryInfo& info) noexcept override;
  int64_t compute_units(int32_t device) noexcept override {
    return attribute(at(device), cudaDevAttrMultiProcessorCount);
  }
  int64_t cache_bytes(int32_t device) noexcept override {
    return attribute(at(device), cudaDevAttrL2CacheSize);
  }

  bool can_access(int32_t device, int32_t peer) noexcept override;
  Status enable_access(const char* function, int32_t device, int32_t peer) noexcept override;
  bool reaches(int32_t device, const void* address) noexcept override;

  Status check(const char* function, int32_t device) noexcept override {
    return at(device).check(function);
  }
  void reset(int32_t device) noexcept override;

 private:
  Device& at(int32_t device) {
    const int32_t number = settings().device_numbers[static_cast<size_t>(device)];
    return *devices_[static_cast<size_t>(number)];
  }

  const Devices devices_;
  size_t device_total_ = 0;
  const size_t host_total_ = machine::memory_info().total;
  Memory memory_;
};

Status CudaBackend::make_stream(const char* function, int32_t device,
                                std::shared_ptr<Stream>& stream) {
  cudaStream_t taken = nullptr;
  const cudaError_t error = at(device).take_stream(taken);
  if (const Status status = at(device).answer(function, error)) return status;
  try {
    stream = std::make_shared<CudaStream>(at(device), taken);
  } catch (const std::bad_alloc&) {
    at(device).give_stream(taken, at(device).age());
    throw;
  }
  return kOk;
}

void* CudaBackend::allocate(int32_t device, MemorySpace space, size_t bytes,
                            Shortage& shortage) noexcept {
  cudaError_t error = cudaSuccess;
  void* const memory = memory_.allocate(at(device), space, bytes, error);
  shortage = {};
  if (error != cudaSuccess) {
    shortage.name = cudaGetErrorName(error);
    shortage.words = cudaGetErrorString(error);
    if (error != cudaErrorMemoryAllocation) shortage.status = ACL_ERROR_RT_INTERNAL_ERROR;
  }
  return memory;
}

Status CudaBackend::memory_info(const char* function, int32_t device, MemoryInfo& info) noexcept {
  const DeviceScope scope(at(device).number());
  const cudaError_t error = cudaMemGetInfo(&info.free, &info.total);
  if (const Status status = at(device).answer(function, error)) return status;
  info.free = std::min(info.free + memory_.kept_bytes(at(device)), info.total);
  return kOk;
}

AddressKind CudaBackend::foreign_kind(const void* address) noexcept {
  MemorySpace space{};
  if (memory_.owns(address, space)) {
    return space == MemorySpace::kDevice ? AddressKind::kDeadDevice : AddressKind::kDeadHost;
  }
  // On a device that is in use, since a device that is asked anything gets a context.
  Device& device = at(contexts::current_device());
  const DeviceScope scope(device.number());
  cudaPointerAttributes attributes{};
  const cudaError_t error = cudaPointerGetAttributes(&attributes, address);
  if (error != cudaSuccess) {
    device.note(error);
    // The call that would use the address tells of a failure of the device.
    return device.failed() ? AddressKind::kUnknown : AddressKind::kPageable;
  }
  switch (attributes.type) {
    case cudaMemoryTypeManaged:
      return AddressKind::kUnknown;
    case cudaMemoryTypeDevice:
      return AddressKind::kForeignDevice;
    case cudaMemoryTypeHost:
      return AddressKind::kForeignHost;
    default:
      return AddressKind::kPageable;
  }
}

// Complete on return, in no order with other streams.
Status CudaBackend::copy(const char* function, void* to, const void* from, size_t bytes) noexcept {
  Device& device = at(contexts::current_device());
  if (const Status status = device.check(function)) return status;
  cudaStream_t stream = nullptr;
  if (const Status status = device.answer(function, device.transfers(stream))) return status;
  const DeviceScope scope(device.number());
  const auto target = reinterpret_cast<uintptr_t>(to);
  const auto source = reinterpret_cast<uintptr_t>(from);
  void* between = nullptr;
  cudaError_t error = cudaSuccess;
  // CUDA's copies do not allow ranges that overlap.
  if (target - source < bytes || source - target < bytes) {
    error = cudaMallocAsync(&between, bytes, stream);
    if (error == cudaErrorMemoryAllocation) {
      device.note(error);
      trim();
      error = cudaMallocAsync(&between, bytes, stream);
    }
    if (error == cudaSuccess) {
      error = cudaMemcpyAsync(between, from, bytes, cudaMemcpyDefault, stream);
    }
    from = between;
  }
  if (error == cudaSuccess) error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
  if (between != nullptr) device.note(cudaFreeAsync(between, stream));
  const cudaError_t end = cudaStreamSynchronize(stream);
  return device.answer(function, error != cudaSuccess ? error : end);
}

Status CudaBackend::fill(const char* function, void* to, int32_t value, size_t bytes) noexcept {
  Device& device = at(contexts::current_device());
  if (const Status status = device.check(function)) return status;
  cudaStream_t stream = nullptr;
  if (const Status status = device.answer(function, device.transfers(stream))) return status;
  const DeviceScope scope(device.number());
  const cudaError_t error = cudaMemsetAsync(to, value, bytes, stream);
  const cudaError_t end = cudaStreamSynchronize(stream);
  return device.answer(function, error != cudaSuccess ? error : end);
}

bool CudaBackend::can_access(int32_t device, int32_t peer) noexcept {
  int can = 0;
  return cudaDeviceCanAccessPeer(&can, at(device).number(), at(peer).number()) == cudaSuccess &&
         can != 0;
}

void CudaBackend::reset(int32_t device) noexcept {
  at(device).reset();
  MemorySpace space{};
  while (void* const lost = memory_.take_lost(at(device), space)) memory::lose(space, lost);
}

Status CudaBackend::enable_access(const char* function, int32_t device, int32_t peer) noexcept {
  const DeviceScope scope(at(device).number());
  const cudaError_t error = cudaDeviceEnablePeerAccess(at(peer).number(), 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
  } else if (const Status status = at(device).answer(function, error)) {
    return status;
  }
  at(device).add_peer(at(peer).number());
  return kOk;
}

bool CudaBackend::reaches(int32_t device, const void* address) noexcept {
  if (devices_.size() < 2) return true;
  Device& own = at(device);
  const Device* const holder = memory_.holder(address);
  int number = holder != nullptr ? holder->number() : own.number();
  if (holder == nullptr) {
    const DeviceScope scope(own.number());
    cudaPointerAttributes attributes{};
    const cudaError_t error = cudaPointerGetAttributes(&attributes, address);
    own.note(error);
    if (error == cudaSuccess && attributes.type == cudaMemoryTypeDevice) number = attributes.device;
  }
  return number == own.number() || own.has_peer(number);
}

}  // namespace
}  // namespace cuda

Backend* cuda_backend() noexcept {
  static cuda::CudaBackend* const kBackend = []() -> cuda::CudaBackend* {
    cuda::Devices devices = cuda::usable_devices();
    return devices.empty() ? nullptr : new cuda::CudaBackend(std::move(devices));
  }();
  return kBackend;
}

const char* cuda_refusal() noexcept { return cuda::refusal; }

}  // namespace aclgrad
