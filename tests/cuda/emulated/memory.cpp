// SPDX-License-Identifier: Apache-2.0
// The calls for memory of the emulated devices (device_memory.h): allocating and freeing, pools,
// what an address is, copies and fills.
#include <atomic>
#include <cstring>

#include "answers.h"
#include "cuda_runtime.h"
#include "device_memory.h"
#include "devices.h"
#include "streams.h"

using emulated::answer_first;
using emulated::current_device;
using emulated::device_memory;
using emulated::drain;
using emulated::need_context;
using emulated::noted;
using emulated::queue;
using emulated::sticky;

struct CUmemPool_st {
  std::atomic<uint64_t> threshold{0};
};

namespace {

// Bytes of host memory may lie anywhere; those of a device inside one allocation.
bool in_range(const void* address, size_t bytes) {
  if (!device_memory().contains(address)) return true;
  size_t left = 0;
  const emulated::Allocation found = device_memory().find(address, &left);
  return found.type != cudaMemoryTypeUnregistered && bytes <= left;
}

}  // namespace

extern "C" {

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t error = answer_first()) return error;
  *total = emulated::DeviceMemory::total();
  *free = device_memory().free_bytes(current_device());
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t error = answer_first()) return error;
  *memory = device_memory().allocate(bytes, cudaMemoryTypeDevice, current_device());
  return noted(*memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFree(void* memory) {
  if (const cudaError_t error = sticky()) return error;
  if (memory == nullptr) return cudaSuccess;
  drain(device_memory().find(memory).device);
  return device_memory().release(memory, cudaMemoryTypeDevice) ? cudaSuccess
                                                               : cudaErrorInvalidValue;
}
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  return queue(stream, [memory] { device_memory().release(memory, cudaMemoryTypeDevice); });
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static auto* const kPools = new CUmemPool_st[emulated::kMostDevices];
  *pool = &kPools[device];
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* value) {
  *static_cast<uint64_t*>(value) = pool->threshold;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* value) {
  pool->threshold = *static_cast<const uint64_t*>(value);
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  if (const cudaError_t error = answer_first()) return error;
  *memory = device_memory().allocate(bytes, cudaMemoryTypeHost, current_device());
  return noted(*memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFreeHost(void* memory) {
  drain(device_memory().find(memory).device);
  return device_memory().release(memory, cudaMemoryTypeHost) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  const emulated::Allocation found = device_memory().find(pointer);
  need_context();
  *out = {found.type, found.device, const_cast<void*>(pointer), const_cast<void*>(pointer)};
  return sticky();
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (!in_range(to, bytes) || !in_range(from, bytes)) return noted(cudaErrorInvalidValue);
  // CUDA takes memory that it does not know through a buffer of its own, behind what is queued, and
  // gives such memory what it asked for before it returns.
  if (!device_memory().contains(from)) stream->synchronize();
  const cudaError_t error = queue(stream, [=] { std::memcpy(to, from, bytes); });
  if (error == cudaSuccess && !device_memory().contains(to)) stream->synchronize();
  return error;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  // Not for the memory of a program that never told CUDA of it.
  if (!device_memory().contains(to) || !in_range(to, bytes)) return noted(cudaErrorInvalidValue);
  return queue(stream, [=] { std::memset(to, value, bytes); });
}

}  // extern "C"
