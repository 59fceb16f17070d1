// SPDX-License-Identifier: Apache-2.0
// The object behind an aclOpExecutor handle: a plan, and whether it may still be run.
#ifndef ACLGRAD_TENSOR_EXECUTOR_H_
#define ACLGRAD_TENSOR_EXECUTOR_H_

#include <atomic>
#include <cstdint>

#include "base/handle_table.h"
#include "tensor/launch_state.h"

namespace aclgrad {

class Executor {
 public:
  explicit Executor(LaunchState& state) : state_(state) {}
  ~Executor() { state_.release(); }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  LaunchState& state() const { return state_; }
  bool repeatable() const {
    const Use use = use_.load(std::memory_order_acquire);
    return use == Use::kRepeatable || use == Use::kRepeated;
  }
  // A repeatable one that was run.
  bool repeated() const { return use_.load(std::memory_order_acquire) == Use::kRepeated; }

  // Each true for one caller only: a fresh executor is either run once, or made repeatable.
  bool spend() { return leave_fresh(Use::kSpent); }
  bool make_repeatable() { return leave_fresh(Use::kRepeatable); }
  // Of a repeatable one: the stream took a run.
  void note_run() {
    if (!repeated()) use_.store(Use::kRepeated, std::memory_order_release);
  }

 private:
  enum class Use : uint8_t { kFresh, kRepeatable, kRepeated, kSpent };
  bool leave_fresh(Use next) {
    Use fresh = Use::kFresh;
    return use_.compare_exchange_strong(fresh, next, std::memory_order_acq_rel);
  }

  LaunchState& state_;
  std::atomic<Use> use_{Use::kFresh};
};

extern constinit HandleTable<Executor> executors;

// Takes over one reference to the state. Throws std::bad_alloc, and takes nothing over then.
aclOpExecutor* create_executor(LaunchState& state);

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_EXECUTOR_H_
