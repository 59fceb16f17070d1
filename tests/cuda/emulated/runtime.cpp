// SPDX-License-Identifier: Apache-2.0
// Devices, streams, events, copies of the emulated runtime. Calls take effect as late as CUDA
// allows: copies happen in their stream, never when they are called.
// One file, though a long one: all of it is about the state that CUDA's calls share.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda_runtime.h"
#include "device_memory.h"
#include "faults.h"
#include "fibers.h"

using Clock = std::chrono::steady_clock;
using emulated::device_memory;

namespace {

constexpr int kMostDevices = 8;

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

thread_local int current_device = 0;

// Whether the thread has a context. Where it has none nearly every call makes one on the device
// that is current, which stays.
thread_local bool in_context = false;
std::atomic<bool> contexts[kMostDevices];
void need_context() {
  in_context = true;
  contexts[current_device] = true;
}

// What a kernel did wrong. It sticks until its device is reset.
struct Fault {
  std::mutex mutex;
  cudaError_t error = cudaSuccess;
  std::string text;
};
Fault& fault_of(int device) {
  static auto* const kFaults = new Fault[kMostDevices];
  return kFaults[device];
}
cudaError_t sticky(int device = current_device) {
  Fault& fault = fault_of(device);
  const std::lock_guard lock(fault.mutex);
  return fault.error;
}
void set_fault(int device, cudaError_t error, const std::string& text) {
  Fault& fault = fault_of(device);
  const std::lock_guard lock(fault.mutex);
  if (fault.error != cudaSuccess) return;
  fault.error = error;
  fault.text = text;
}

// Bytes of shared memory: what every kernel may have, and what one may ask for (an H200's).
constexpr size_t kUsualShared = size_t{48} << 10;
constexpr size_t kMostShared = size_t{227} << 10;

// What kernels have asked for.
struct SharedSizes {
  std::mutex mutex;
  std::map<const void*, size_t> of;
};
SharedSizes& shared_sizes() {
  static auto* const kSizes = new SharedSizes;
  return *kSizes;
}
bool shared_fits(const void* kernel, size_t bytes) {
  if (bytes <= kUsualShared) return true;
  SharedSizes& sizes = shared_sizes();
  const std::lock_guard lock(sizes.mutex);
  const auto found = sizes.of.find(kernel);
  return found != sizes.of.end() && bytes <= found->second;
}

thread_local cudaError_t last_error = cudaSuccess;
cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

std::atomic<int> calls_to_failure{0};
std::atomic<int> more_failures{0};  // behind the first
std::atomic<cudaError_t> wanted_error{cudaSuccess};
std::atomic<int> launch_count{0};  // since a test said what fails
std::atomic<int> launches_before{0};
std::atomic<bool> resets_refused{false};

bool sticks(cudaError_t error) {
  constexpr int kNumbers[] = {700, 703, 719, 721, 810, 911, 999};
  return std::find(std::begin(kNumbers), std::end(kNumbers), int{error}) != std::end(kNumbers);
}

// What a call answers before it does anything.
cudaError_t answer_first() {
  need_context();
  if (calls_to_failure.load() > 0 && calls_to_failure.fetch_sub(1) == 1) {
    const cudaError_t error = wanted_error.load();
    launches_before = launch_count.load();
    if (more_failures.load() > 0) {
      --more_failures;
      calls_to_failure = 1;
    }
    if (sticks(error)) set_fault(current_device, error, "wanted by a test");
    return noted(error);
  }
  return noted(sticky());
}

void on_fault(int number, siginfo_t* info, void* context) {
  if (device_memory().contains(info->si_addr)) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    emulated::leave_kernel(info->si_addr);
  }
  // The host's own fault: as if this handler were not there.
  signal(number, SIG_DFL);
  static_cast<void>(context);
}
void handle_faults() {
  static const bool kDone = [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    return true;
  }();
  static_cast<void>(kDone);
}

}  // namespace

// An in-order queue and the thread that runs it.
struct CUstream_st {
  explicit CUstream_st(int number) : device(number) {}

  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    changed.notify_all();
  }
  void synchronize() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return tasks.empty() && !running; });
  }
  bool idle() {
    const std::lock_guard lock(mutex);
    return tasks.empty() && !running;
  }
  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    changed.notify_all();
  }
  static void run(const std::shared_ptr<CUstream_st>& self) {
    std::unique_lock lock(self->mutex);
    for (;;) {
      self->changed.wait(lock, [&] { return !self->tasks.empty() || self->closed; });
      if (self->tasks.empty()) return;
      const std::function<void()> task = std::move(self->tasks.front());
      self->tasks.pop_front();
      self->running = true;
      lock.unlock();
      task();
      lock.lock();
      self->running = false;
      self->changed.notify_all();
    }
  }

  const int device;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool running = false;
  bool closed = false;
  std::shared_ptr<CUstream_st> self;
};

namespace {

// Host functions of all streams are called one after the other, as by the one thread that CUDA may
// have for them.
void call_on_host(cudaHostFn_t function, void* data) {
  static auto* const kMutex = new std::mutex;
  const std::lock_guard lock(*kMutex);
  function(data);
}

}  // namespace

namespace {

struct Streams {
  std::mutex mutex;
  std::vector<std::weak_ptr<CUstream_st>> all;
};
Streams& streams() {
  static auto* const kStreams = new Streams;
  return *kStreams;
}
void add_stream(const std::shared_ptr<CUstream_st>& stream) {
  Streams& list = streams();
  const std::lock_guard lock(list.mutex);
  std::erase_if(list.all, [](const std::weak_ptr<CUstream_st>& each) { return each.expired(); });
  list.all.push_back(stream);
}
// Waits for what the streams of a device have.
void drain(int device) {
  std::vector<std::weak_ptr<CUstream_st>> all;
  {
    const std::lock_guard lock(streams().mutex);
    all = streams().all;
  }
  for (const std::weak_ptr<CUstream_st>& each : all) {
    const std::shared_ptr<CUstream_st> stream = each.lock();
    if (stream != nullptr && stream->device == device) stream->synchronize();
  }
}

}  // namespace

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
struct CUmemPool_st {
  std::atomic<uint64_t> threshold{0};
};

namespace {

cudaError_t queue(cudaStream_t stream, std::function<void()> task) {
  if (stream == nullptr || stream->device != current_device) {
    return noted(cudaErrorInvalidResourceHandle);
  }
  if (const cudaError_t error = answer_first()) return error;
  stream->push(std::move(task));
  return cudaSuccess;
}

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
  *context = in_context ? contexts + current_device : nullptr;
  return 0;
}
int set_current_context(void* context) {
  in_context = context != nullptr;
  // The program's copy of the runtime would know nothing of a device that another copy chose.
  const auto* const chosen = static_cast<std::atomic<bool>*>(context);
  current_device = in_context ? static_cast<int>(chosen - contexts) : 0;
  return 0;
}

// Bytes of host memory may lie anywhere; those of a device inside one allocation.
bool in_range(const void* address, size_t bytes) {
  if (!device_memory().contains(address)) return true;
  size_t left = 0;
  const emulated::Allocation found = device_memory().find(address, &left);
  return found.type != cudaMemoryTypeUnregistered && bytes <= left;
}

}  // namespace

namespace emulated {

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread_of_kernel) {
  const dim3& block = config.blockDim;
  const dim3& grid = config.gridDim;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool good = threads >= 1 && threads <= kMostThreads && grid.x >= 1 && grid.y >= 1 &&
                    grid.z >= 1 && grid.x <= 0x7FFFFFFFu && grid.y <= 65535 && grid.z <= 65535 &&
                    shared_fits(kernel, config.dynamicSmemBytes);
  if (!good) return noted(cudaErrorInvalidConfiguration);
  const int device = current_device;
  ++launch_count;
  return queue(config.stream, [config, device, body = std::move(thread_of_kernel)] {
    if (sticky(device) != cudaSuccess) return;
    cudaError_t kind = cudaErrorLaunchFailure;
    const std::string error = run_grid(config, body, kind);
    if (error.empty()) return;
    set_fault(device, kind, error);
  });
}

void fail_call(int call, cudaError_t error) { fail_calls(call, 1, error); }
void fail_calls(int call, int count, cudaError_t error) {
  wanted_error = error;
  launch_count = 0;
  more_failures = count - 1;
  calls_to_failure = call;
}
bool call_failed() { return calls_to_failure.load() <= 0; }
int launches() { return launch_count.load(); }
int launches_before_failure() { return launches_before.load(); }
void refuse_resets(bool refuse) { resets_refused = refuse; }
bool has_context(int device) { return contexts[device].load(); }

}  // namespace emulated

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    default:
      return "cudaError";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error != cudaErrorIllegalAddress && error != cudaErrorMisalignedAddress &&
      error != cudaErrorLaunchFailure) {
    return cudaGetErrorName(error);
  }
  thread_local std::string text;
  Fault& fault = fault_of(current_device);
  const std::lock_guard lock(fault.mutex);
  text = fault.text;
  return text.c_str();
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t error = sticky();
  return error != cudaSuccess ? error : last_error;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (device_count() == 0) return cudaErrorInsufficientDriver;
  handle_faults();
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  current_device = device;
  need_context();
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() {
  if (resets_refused.load()) return noted(sticky());
  drain(current_device);  // nothing of it outlives the reset
  device_memory().release_all(current_device);
  Fault& fault = fault_of(current_device);
  const std::lock_guard lock(fault.mutex);
  fault.error = cudaSuccess;
  fault.text.clear();
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
      *value = static_cast<int>(kMostShared);
      return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* kernel) {
  if (const cudaError_t error = answer_first(); error != cudaSuccess) return error;
  SharedSizes& sizes = shared_sizes();
  const std::lock_guard lock(sizes.mutex);
  const auto found = sizes.of.find(kernel);
  const size_t most = found == sizes.of.end() ? kUsualShared : found->second;
  *out = {0, static_cast<int>(most)};
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (const cudaError_t error = answer_first(); error != cudaSuccess) return error;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > kMostShared) {
    return noted(cudaErrorInvalidValue);
  }
  SharedSizes& sizes = shared_sizes();
  const std::lock_guard lock(sizes.mutex);
  size_t& most = sizes.of[kernel];
  // CUDA allows it, but another thread may be about to launch with the larger size.
  if (static_cast<size_t>(value) < most) return noted(cudaErrorInvalidValue);
  most = static_cast<size_t>(value);
  return cudaSuccess;
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
  return peer == current_device ? cudaErrorInvalidDevice : cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t error = answer_first()) return error;
  *total = emulated::DeviceMemory::total();
  *free = device_memory().free_bytes(current_device);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t error = answer_first()) return error;
  *memory = device_memory().allocate(bytes, cudaMemoryTypeDevice, current_device);
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
  static auto* const kPools = new CUmemPool_st[kMostDevices];
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
  *memory = device_memory().allocate(bytes, cudaMemoryTypeHost, current_device);
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

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t error = answer_first()) return error;
  auto made = std::make_shared<CUstream_st>(current_device);
  made->self = made;
  add_stream(made);
  std::thread(&CUstream_st::run, made).detach();
  *stream = made.get();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  // Its work still runs to its end.
  const std::shared_ptr<CUstream_st> last = std::move(stream->self);
  last->close();
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  need_context();
  stream->synchronize();
  return sticky(stream->device);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  need_context();
  if (const cudaError_t error = noted(sticky(stream->device))) return error;
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  uint64_t record = 0;
  {
    const std::lock_guard lock(event->state->mutex);
    record = event->state->called;
  }
  return queue(stream, [state = event->state, record] { state->wait(record); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t error = answer_first()) return error;
  *event = new CUevent_st;
  (*event)->device = current_device;
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

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return queue(stream, [=] { call_on_host(function, data); });
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
