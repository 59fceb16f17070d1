// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/device.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

namespace aclgrad::cuda {
namespace {

// Records in one piece of host memory.
constexpr size_t kRecords = 64;

// Scratch that a device keeps when nothing uses it: what sorting sixteen million indices takes.
constexpr uint64_t kKeptScratch = uint64_t{256} << 20;

// Errors after which CUDA does nothing more on the device until it is reset: they were found while
// a kernel ran. The numbers are those of CUDA's enumeration.
bool is_final(cudaError_t error) {
  const int number = static_cast<int>(error);
  switch (number) {
    case 214:  // ECC
    case 220:  // NVLink
    case 226:  // an error that was contained
    case 702:  // launch time-out
    case 709:  // the context is destroyed
    case 710:  // assert
      return true;
    default:
      return number == 700 || (number >= 714 && number <= 719);
  }
}

int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void Device::note(cudaError_t error) {
  if (error == cudaSuccess || error == cudaErrorNotReady) return;
  cudaGetLastError();  // else CUDA tells it again, to whoever asks next
  if (!is_final(error)) return;
  const std::lock_guard lock(mutex_);
  if (failed_.load(std::memory_order_relaxed)) return;
  try {
    cause_ = std::string(cudaGetErrorName(error)) + ": " + cudaGetErrorString(error);
  } catch (const std::bad_alloc&) {
    cause_.clear();
  }
  failed_.store(true, std::memory_order_release);
}

Status Device::check(const char* function) {
  if (!failed()) [[likely]]
    return kOk;
  const std::lock_guard lock(mutex_);
  return fail(ACL_ERROR_RT_AICORE_EXCEPTION, "%s: device %d failed before, with %s; expected %s",
              function, number_, cause_.c_str(),
              reset_in_vain_ ? "a new process, since CUDA could not reset it" : "aclrtResetDevice");
}

Status Device::answer(const char* function, cudaError_t error) {
  if (error == cudaSuccess) [[likely]]
    return kOk;
  note(error);
  if (failed()) return check(function);
  const Status status = error == cudaErrorMemoryAllocation ? ACL_ERROR_RT_MEMORY_ALLOCATION
                                                           : ACL_ERROR_RT_INTERNAL_ERROR;
  return fail(status, "%s: CUDA answered %s: %s", function, cudaGetErrorName(error),
              cudaGetErrorString(error));
}

void Device::reset() {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(number_);
  // First, so that nobody asks CUDA about what it destroys.
  age_.fetch_add(1, std::memory_order_acq_rel);
  cudaError_t error = cudaDeviceReset();
  if (error == cudaSuccess) error = cudaFree(nullptr);  // begins anew
  if (error != cudaSuccess) cudaGetLastError();
  transfers_ = nullptr;
  base_ = nullptr;
  pool_ = nullptr;
  streams_.clear();
  for (std::vector<cudaEvent_t>& events : events_) events.clear();
  records_.clear();
  reset_in_vain_ = error != cudaSuccess;
  if (reset_in_vain_) return;
  cause_.clear();
  failed_.store(false, std::memory_order_release);
}

cudaStream_t Device::transfers() {
  const DeviceScope scope(number_);
  cudaError_t error = cudaSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (transfers_ != nullptr) return transfers_;
    error = cudaStreamCreateWithFlags(&transfers_, cudaStreamNonBlocking);
    if (error == cudaSuccess) return transfers_;
    transfers_ = nullptr;
  }
  note(error);
  return nullptr;
}

cudaStream_t Device::take_stream() {
  cudaStream_t stream = nullptr;
  const DeviceScope scope(number_);
  {
    const std::lock_guard lock(mutex_);
    keep_scratch();
    if (!streams_.empty()) {
      stream = streams_.back();
      streams_.pop_back();
      return stream;
    }
  }
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) return stream;
  note(error);
  return nullptr;
}

void Device::give_stream(cudaStream_t stream, uint64_t age) {
  const std::lock_guard lock(mutex_);
  if (age != this->age()) return;
  try {
    streams_.push_back(stream);
  } catch (const std::bad_alloc&) {
    cudaStreamDestroy(stream);
  }
}

cudaEvent_t Device::take_event(bool timed) {
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::vector<cudaEvent_t>& events = events_[timed ? 1 : 0];
    if (!events.empty()) {
      event = events.back();
      events.pop_back();
      return event;
    }
  }
  const cudaError_t error =
      cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming);
  if (error == cudaSuccess) return event;
  note(error);
  return nullptr;
}

// CUDA's pool gives everything back whenever somebody waits for the device, and memory that is to
// be had again costs more than a kernel. All libraries of a process share the pool.
void Device::keep_scratch() {
  if (pool_ != nullptr) return;
  uint64_t kept = 0;
  if (cudaDeviceGetDefaultMemPool(&pool_, number_) != cudaSuccess ||
      cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept) != cudaSuccess) {
    cudaGetLastError();
    return;  // slower, and no error
  }
  kept = std::max(kept, kKeptScratch);
  if (cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &kept) != cudaSuccess) {
    cudaGetLastError();
  }
}

void Device::trim() {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(number_);
  if (pool_ != nullptr && cudaMemPoolTrimTo(pool_, 0) != cudaSuccess) cudaGetLastError();
}

void Device::give_event(cudaEvent_t event, bool timed, uint64_t age) {
  const std::lock_guard lock(mutex_);
  if (age != this->age()) return;
  try {
    events_[timed ? 1 : 0].push_back(event);
  } catch (const std::bad_alloc&) {
    cudaEventDestroy(event);
  }
}

// With mutex_ held.
bool Device::make_base() {
  if (base_ != nullptr) return true;
  cudaStream_t stream = nullptr;
  const DeviceScope scope(number_);
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return false;
  const bool made = cudaEventCreateWithFlags(&base_, cudaEventDefault) == cudaSuccess &&
                    cudaEventRecord(base_, stream) == cudaSuccess &&
                    cudaEventSynchronize(base_) == cudaSuccess;
  base_time_ = now();
  if (!made) base_ = nullptr;
  cudaStreamDestroy(stream);
  return made;
}

int64_t Device::nanoseconds(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  float milliseconds = 0.0f;
  if (!make_base() || cudaEventElapsedTime(&milliseconds, base_, event) != cudaSuccess) {
    return now();
  }
  return base_time_ + static_cast<int64_t>(std::llround(static_cast<double>(milliseconds) * 1e6));
}

DeviceRecord* Device::take_record() {
  cudaError_t error = cudaSuccess;
  DeviceRecord* const record = take_record(error);
  note(error);
  return record;
}

DeviceRecord* Device::take_record(cudaError_t& error) {
  const std::lock_guard lock(mutex_);
  if (records_.empty()) {
    void* memory = nullptr;
    error = cudaHostAlloc(&memory, kRecords * sizeof(DeviceRecord),
                          cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) return nullptr;
    auto* const records = static_cast<DeviceRecord*>(memory);
    try {
      records_.reserve(records_.capacity() + kRecords);  // room for all, so giving needs none
    } catch (const std::bad_alloc&) {
      cudaFreeHost(memory);
      return nullptr;
    }
    for (size_t i = 0; i < kRecords; ++i) records_.push_back(records + i);
  }
  DeviceRecord* const record = records_.back();
  records_.pop_back();
  *record = DeviceRecord{};
  return record;
}

void Device::give_record(DeviceRecord* record, uint64_t age) {
  const std::lock_guard lock(mutex_);
  if (age == this->age()) records_.push_back(record);
}

}  // namespace aclgrad::cuda
