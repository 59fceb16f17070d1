// SPDX-License-Identifier: Apache-2.0
// One GPU as the runtime sees it: what CUDA answered last for good, and what the library keeps for
// itself on it. CUDA's current device belongs to the program: calls here change it for a while.
#ifndef ACLGRAD_RUNTIME_CUDA_DEVICE_H_
#define ACLGRAD_RUNTIME_CUDA_DEVICE_H_

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/device_record.h"
#include "base/status.h"

namespace aclgrad::cuda {

// Makes a device CUDA's current one of this thread, and at the end what was before. That is a
// context, or none: choosing the device before it would make a context there, of half a gigabyte,
// on a device that the program may never use.
class DeviceScope {
 public:
  explicit DeviceScope(int number);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  enum class Restores : uint8_t { kNothing, kContext, kDevice };

  void* context_ = nullptr;
  int device_ = 0;
  Restores restores_ = Restores::kNothing;
};

class Device {
 public:
  Device(int number, size_t total_memory) : number_(number), total_memory_(total_memory) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int number() const { return number_; }  // CUDA's
  size_t total_memory() const { return total_memory_; }
  // Grows with every reset: what CUDA made before is gone.
  uint64_t age() const { return age_.load(std::memory_order_acquire); }

  // 0, or the contract's code with CUDA's words in the message: 207001 without memory, 507015 when
  // the device has failed for good.
  Status answer(const char* function, cudaError_t error);
  Status check(const char* function);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Keeps the first cause of a failure for good; other errors are not kept.
  void note(cudaError_t error);
  // Only when no stream of the device is left. Where CUDA cannot bring it back (after most faults
  // only a new process can) the failure stays, with its first cause.
  void reset();

  // What CUDA does not make has its answer as the result, which is for answer() to tell.

  // For copies that a caller waits for.
  cudaError_t transfers(cudaStream_t& stream);

  // Streams too are used again and again; what is given back is idle.
  cudaError_t take_stream(cudaStream_t& stream);
  void give_stream(cudaStream_t stream, uint64_t age);

  // Events are used again and again.
  cudaError_t take_event(bool timed, cudaEvent_t& event);
  void give_event(cudaEvent_t event, bool timed, uint64_t age);
  // On the clock of the host, of a timed event that was passed.
  int64_t nanoseconds(cudaEvent_t event);

  // Host memory that kernels can write. Throws std::bad_alloc where there is none for its list.
  cudaError_t take_record(DeviceRecord*& record);
  void give_record(DeviceRecord* record, uint64_t age);

  // Whether streams of the device can wait for a word (gate.h), and how. Known once it has made
  // one.
  bool has_gates() const { return gates_.load(std::memory_order_acquire) == Gates::kSome; }
  cudaError_t hold(cudaStream_t stream, const DeviceRecord& word);
  void open(DeviceRecord& word, uint64_t age) noexcept;

  // Some stream waits, or will, for what a thread of the program does. To wait for the device may
  // then be to wait for oneself.
  bool is_held() const { return held_.load(std::memory_order_acquire) != 0; }
  void add_held(int count, uint64_t age) noexcept;

  // Whose memory kernels of this device may use, by CUDA's numbers.
  void add_peer(int number) { peers_.fetch_or(uint64_t{1} << number); }
  bool has_peer(int number) const { return (peers_.load() >> number & 1) != 0; }

  // Gives back what cudaFreeAsync() left for later.
  void trim();

 private:
  void try_gates(cudaStream_t idle);
  bool make_base();
  void keep_scratch();  // with mutex_ held

  const int number_;
  const size_t total_memory_;
  std::atomic<uint64_t> age_{0};
  std::atomic<bool> failed_{false};
  std::atomic<uint64_t> peers_{0};
  enum class Gates : uint8_t { kUnknown, kNone, kSome };
  std::atomic<Gates> gates_{Gates::kUnknown};
  std::atomic<int> held_{0};  // gates that are not open, since the last reset
  std::mutex words_mutex_;    // words and held_ are written under it, and not after a reset
  std::mutex reset_mutex_;    // one reset at a time; mutex_ is not held while CUDA resets
  std::mutex mutex_;
  std::string cause_;
  bool reset_in_vain_ = false;
  cudaStream_t transfers_ = nullptr;
  cudaEvent_t base_ = nullptr;  // where the clock of the host stood at `base_time_`
  int64_t base_time_ = 0;
  cudaMemPool_t pool_ = nullptr;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_[2];
  std::vector<DeviceRecord*> records_;
};

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_RUNTIME_CUDA_DEVICE_H_
