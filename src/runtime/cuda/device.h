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

// Makes a device CUDA's current one of this thread, and the one before it again at the end.
class DeviceScope {
 public:
  explicit DeviceScope(int number) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = number;
    if (before_ != number) cudaSetDevice(number);
    changed_ = before_ != number;
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
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

  // For copies that a caller waits for. Null when CUDA makes none; the error is noted.
  cudaStream_t transfers();

  // Streams too are used again and again; what is given back is idle. Null when CUDA makes none.
  cudaStream_t take_stream();
  void give_stream(cudaStream_t stream, uint64_t age);

  // Events are used again and again. Null when CUDA makes none.
  cudaEvent_t take_event(bool timed);
  void give_event(cudaEvent_t event, bool timed, uint64_t age);
  // On the clock of the host, of a timed event that was passed.
  int64_t nanoseconds(cudaEvent_t event);

  // Host memory that kernels can write.
  DeviceRecord* take_record();
  void give_record(DeviceRecord* record, uint64_t age);

  // Gives back what cudaFreeAsync() left for later.
  void trim();

 private:
  bool make_base();
  void keep_scratch();  // with mutex_ held
  DeviceRecord* take_record(cudaError_t& error);

  const int number_;
  const size_t total_memory_;
  std::atomic<uint64_t> age_{0};
  std::atomic<bool> failed_{false};
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
