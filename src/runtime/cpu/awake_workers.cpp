// SPDX-License-Identifier: Apache-2.0
#include "runtime/cpu/awake_workers.h"

#include <atomic>
#include <mutex>

#include "runtime/cpu/stream.h"

namespace aclgrad::awake_workers {
namespace {

constinit std::mutex mutex;
constinit int awake = 0;
constinit std::atomic<bool> all_asleep{false};
// Never destroyed: workers fall asleep while static destructors run.
union Latest {
  constexpr Latest() : stream() {}
  ~Latest() {}
  std::weak_ptr<CpuStream> stream;
};
constinit Latest latest;

}  // namespace

void note_awake() noexcept {
  const std::lock_guard lock(mutex);
  ++awake;
  all_asleep.store(false, std::memory_order_relaxed);
}

void note_asleep(std::weak_ptr<CpuStream> stream) noexcept {
  const std::lock_guard lock(mutex);
  if (!stream.expired()) latest.stream.swap(stream);
  if (--awake == 0) all_asleep.store(true, std::memory_order_relaxed);
}

void expect_work() noexcept {
  if (!all_asleep.load(std::memory_order_relaxed)) return;
  std::shared_ptr<CpuStream> stream;
  {
    // Phase one waits for nobody: nothing is lost without a wake-up.
    const std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock.owns_lock()) return;
    all_asleep.store(false, std::memory_order_relaxed);
    stream = latest.stream.lock();
  }
  if (stream != nullptr) stream->expect_work();
}

}  // namespace aclgrad::awake_workers
