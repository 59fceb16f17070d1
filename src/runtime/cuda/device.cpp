// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/device.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

#include "runtime/cuda/driver.h"

namespace aclgrad::cuda {
namespace {

// Records in one piece of host memory.
constexpr size_t kRecords = 64;

// Scratch that a device keeps when nothing uses it: what sorting sixteen million indices takes.
constexpr uint64_t kKeptScratch = uint64_t{256} << 20;

// Errors after which CUDA does nothing more on the device until it is reset, or the process begins
// anew: mostly they were found while a kernel ran. The numbers are those of CUDA's enumeration, of
// which older versions have not all.
bool is_final(cudaError_t error) {
  const int number = static_cast<int>(error);
  switch (number) {
    case 214:  // ECC
    case 220:  // NVLink
    case 226:  // an error that was contained
    case 702:  // launch time-out
    case 703:  // incompatible texturing
    case 709:  // the context is destroyed
    case 710:  // assert
    case 721:  // tensor memory that was not given back
    case 810:  // MPS ended this client
    case 911:  // a device that is no GPU
    case 999:  // unknown
      return true;
    default:
      return number == 700 || (number >= 714 && number <= 719);
  }
}

// Of cuStreamWaitValue32(): until the word is at least the value.
constexpr unsigned kAtLeast = 0;
constexpr uint32_t kOpen = 1;

int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// The program's own copy of CUDA's runtime keeps in mind which device a thread of it chose, and
// meets only the driver's context; so that is what has to be put back.
DeviceScope::DeviceScope(int number) {
  const Driver& functions = driver();
  int current = -1;
  const bool known = functions.current_context != nullptr &&
                     functions.set_current_context != nullptr &&
                     functions.current_context(&context_) == 0;
  if (cudaGetDevice(&current) != cudaSuccess) current = number;
  if (current == number && (!known || context_ != nullptr)) return;
  device_ = current;
  restores_ = known ? Restores::kContext : Restores::kDevice;
  cudaSetDevice(number);
}

DeviceScope::~DeviceScope() {
  if (restores_ == Restores::kContext) driver().set_current_context(context_);
  if (restores_ == Restores::kDevice) cudaSetDevice(device_);
}

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
  const std::lock_guard alone(reset_mutex_);
  if (!failed()) return;  // another thread's reset has mended it
  const DeviceScope scope(number_);
  // First, so that nobody asks CUDA about what it destroys.
  {
    const std::lock_guard lock(mutex_);
    const std::lock_guard words_lock(words_mutex_);
    age_.fetch_add(1, std::memory_order_acq_rel);
    held_.store(0, std::memory_order_release);
    transfers_ = nullptr;
    base_ = nullptr;
    pool_ = nullptr;
    peers_ = 0;
    streams_.clear();
    for (std::vector<cudaEvent_t>& events : events_) events.clear();
    records_.clear();
  }
  // Without the lock: CUDA may wait for its host functions, and those give events back.
  cudaError_t error = cudaDeviceReset();
  if (error == cudaSuccess) error = cudaFree(nullptr);  // begins anew
  if (error != cudaSuccess) cudaGetLastError();
  const std::lock_guard lock(mutex_);
  reset_in_vain_ = error != cudaSuccess;
  if (reset_in_vain_) return;
  cause_.clear();
  failed_.store(false, std::memory_order_release);
}

cudaError_t Device::transfers(cudaStream_t& stream) {
  const DeviceScope scope(number_);
  const std::lock_guard lock(mutex_);
  cudaError_t error = cudaSuccess;
  if (transfers_ == nullptr) error = cudaStreamCreateWithFlags(&transfers_, cudaStreamNonBlocking);
  if (error != cudaSuccess) transfers_ = nullptr;
  stream = transfers_;
  return error;
}

cudaError_t Device::take_stream(cudaStream_t& stream) {
  const DeviceScope scope(number_);
  {
    const std::lock_guard lock(mutex_);
    keep_scratch();
    if (!streams_.empty()) {
      stream = streams_.back();
      streams_.pop_back();
      return cudaSuccess;
    }
  }
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) try_gates(stream);
  return error;
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

cudaError_t Device::take_event(bool timed, cudaEvent_t& event) {
  {
    const std::lock_guard lock(mutex_);
    std::vector<cudaEvent_t>& events = events_[timed ? 1 : 0];
    if (!events.empty()) {
      event = events.back();
      events.pop_back();
      return cudaSuccess;
    }
  }
  return cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming);
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
  cudaMemPool_t pool = nullptr;
  {
    const std::lock_guard lock(mutex_);
    pool = pool_;
  }
  const DeviceScope scope(number_);
  if (pool != nullptr && cudaMemPoolTrimTo(pool, 0) != cudaSuccess) cudaGetLastError();
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
  const DeviceScope scope(number_);
  if (!make_base() || cudaEventElapsedTime(&milliseconds, base_, event) != cudaSuccess) {
    return now();
  }
  return base_time_ + static_cast<int64_t>(std::llround(static_cast<double>(milliseconds) * 1e6));
}

cudaError_t Device::take_record(DeviceRecord*& record) {
  const std::lock_guard lock(mutex_);
  if (records_.empty()) {
    records_.reserve(records_.capacity() + kRecords);  // room for all, so giving needs none
    void* memory = nullptr;
    const cudaError_t error = cudaHostAlloc(&memory, kRecords * sizeof(DeviceRecord),
                                            cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) return error;
    auto* const records = static_cast<DeviceRecord*>(memory);
    for (size_t i = 0; i < kRecords; ++i) records_.push_back(records + i);
  }
  record = records_.back();
  records_.pop_back();
  *record = DeviceRecord{};
  return cudaSuccess;
}

void Device::give_record(DeviceRecord* record, uint64_t age) {
  const std::lock_guard lock(mutex_);
  if (age == this->age()) records_.push_back(record);
}

// By trying: a wait that is over at once. Older drivers have the function, and refuse.
void Device::try_gates(cudaStream_t idle) {
  if (gates_.load(std::memory_order_acquire) != Gates::kUnknown) return;
  DeviceRecord* word = nullptr;
  if (driver().stream_wait_value != nullptr) note(take_record(word));
  Gates found = Gates::kNone;
  if (word != nullptr) {
    word->rule = kOpen;
    if (hold(idle, *word) == cudaSuccess) found = Gates::kSome;
    note(cudaStreamSynchronize(idle));
    give_record(word, age());
  }
  gates_.store(found, std::memory_order_release);
}

// The stream's device is the current one.
cudaError_t Device::hold(cudaStream_t stream, const DeviceRecord& word) {
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&word.rule));
  return static_cast<cudaError_t>(driver().stream_wait_value(stream, address, kOpen, kAtLeast));
}

void Device::add_held(int count, uint64_t age) noexcept {
  const std::lock_guard lock(words_mutex_);
  if (age == this->age()) held_.fetch_add(count, std::memory_order_acq_rel);
}

void Device::open(DeviceRecord& word, uint64_t age) noexcept {
  const std::lock_guard lock(words_mutex_);
  if (age != this->age()) return;  // the word is gone
  std::atomic_ref<int64_t>(word.rule).store(kOpen, std::memory_order_release);
}

}  // namespace aclgrad::cuda
