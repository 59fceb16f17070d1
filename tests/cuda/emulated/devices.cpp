// SPDX-License-Identifier: Apache-2.0
#include "devices.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "answers.h"
#include "cuda_runtime.h"
#include "device_memory.h"
#include "faults.h"
#include "launches.h"
#include "streams.h"

using emulated::device_memory;
using emulated::drain;
using emulated::forget_fault;
using emulated::handle_faults;
using emulated::kMostDevices;
using emulated::need_context;
using emulated::noted;
using emulated::queue;
using emulated::sticky;

namespace {

// ACLGRAD_EMULATED_DEVICES: how many there are, 1 if it is not set; 0 is a machine without a GPU.
int device_count() {
  static const int kCount = [] {
    const char* const value = std::getenv("ACLGRAD_EMULATED_DEVICES");
    return value == nullptr ? 1 : std::atoi(value);
  }();
  return kCount;
}

// ACLGRAD_EMULATED_OLD_DRIVER: streams cannot wait for words of memory.
bool old_driver() {
  static const bool kOld = std::getenv("ACLGRAD_EMULATED_OLD_DRIVER") != nullptr;
  return kOld;
}

thread_local int current = 0;
thread_local bool in_context = false;
std::atomic<bool> contexts[kMostDevices];
std::atomic<bool> resets_refused{false};

// Functions of the driver, for cudaGetDriverEntryPointByVersion().

int stream_wait_value(cudaStream_t stream, uint64_t address, uint32_t value, unsigned flags) {
  if (flags != 0 || old_driver()) return cudaErrorNotSupported;
  const auto* const word = reinterpret_cast<const uint32_t*>(address);
  uint32_t now = 0;
  if (!device_memory().read(word, now)) return cudaErrorInvalidValue;
  return queue(stream, [=, device = stream->device] {
    uint32_t seen = 0;
    while (device_memory().read(word, seen) && static_cast<int32_t>(seen - value) < 0 &&
           sticky(device) == cudaSuccess) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
}

// A device has one context, and its number says which.
int current_context(void** context) {
  *context = in_context ? contexts + current : nullptr;
  return 0;
}
int set_current_context(void* context) {
  in_context = context != nullptr;
  // The program's copy of the runtime would know nothing of a device that another copy chose.
  const auto* const chosen = static_cast<std::atomic<bool>*>(context);
  current = in_context ? static_cast<int>(chosen - contexts) : 0;
  return 0;
}

}  // namespace

namespace emulated {

int current_device() { return current; }
void need_context() {
  in_context = true;
  contexts[current] = true;
}
bool has_context(int device) { return contexts[device].load(); }
void refuse_resets(bool refuse) { resets_refused = refuse; }

}  // namespace emulated

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (device_count() == 0) return cudaErrorInsufficientDriver;
  handle_faults();
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  current = device;
  need_context();
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() {
  if (resets_refused.load()) return noted(sticky());
  drain(current);  // nothing of it outlives the reset
  device_memory().release_all(current);
  forget_fault(current);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:
      *value = 1 << 20;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(emulated::kMostShared);
      return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  *out = {"emulated", emulated::DeviceMemory::total(), 9};
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return peer == current ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult*) {
  const std::string wanted = name;
  *function = nullptr;
  if (wanted == "cuStreamWaitValue32") *function = reinterpret_cast<void*>(stream_wait_value);
  if (wanted == "cuCtxGetCurrent") *function = reinterpret_cast<void*>(current_context);
  if (wanted == "cuCtxSetCurrent") *function = reinterpret_cast<void*>(set_current_context);
  return *function != nullptr ? cudaSuccess : noted(cudaErrorInvalidValue);
}

}  // extern "C"
