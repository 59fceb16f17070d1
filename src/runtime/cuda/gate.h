// SPDX-License-Identifier: Apache-2.0
// A word of the host's memory that a stream waits for. A host function that waited in its place
// would keep those of all other streams waiting, since CUDA may run them all on one thread.
#ifndef ACLGRAD_RUNTIME_CUDA_GATE_H_
#define ACLGRAD_RUNTIME_CUDA_GATE_H_

#include <atomic>

#include "runtime/cuda/device.h"
#include "runtime/work.h"

namespace aclgrad::cuda {

class Gate final : public DeviceGate {
 public:
  // Takes over the word, which is 0.
  Gate(Device& device, DeviceRecord* word) : device_(device), word_(word), age_(device.age()) {
    device_.add_held(1, age_);
  }
  ~Gate() override {
    let_go();
    device_.give_record(word_, age_);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() noexcept override {
    device_.open(*word_, age_);
    let_go();
  }
  const DeviceRecord& word() const { return *word_; }

 private:
  void let_go() noexcept {
    if (!opened_.exchange(true)) device_.add_held(-1, age_);
  }

  Device& device_;
  DeviceRecord* const word_;
  const uint64_t age_;
  std::atomic<bool> opened_{false};
};

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_RUNTIME_CUDA_GATE_H_
