// SPDX-License-Identifier: Apache-2.0
// Two ways through the same work, with the same bits, of which the machine's memory favours now one
// and now the other. Runs are timed, and each problem goes by the way that was faster of late.
#ifndef ACLGRAD_KERNELS_CPU_FASTER_WAY_H_
#define ACLGRAD_KERNELS_CPU_FASTER_WAY_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace aclgrad {

// May be used by several threads at a time: what they overwrite of each other costs speed at most.
template <class Clock = std::chrono::steady_clock>
class FasterWay {
 public:
  // What tells problems apart: shape, threads.
  using Problem = std::array<int64_t, 4>;

  // Calls work(second) once. The first two runs of a problem go by the way that `second_first`
  // names, and the first one, which finds nothing in the caches, is not counted; the third goes by
  // the other way, each later one by the faster. Every kTurns runs the slower one is tried again:
  // a memory changes its pace (two cores of Zen 5: after a minute or ten).
  template <class Work>
  void run(const Problem& problem, bool second_first, Work&& work) {
    const uint64_t key = key_of(problem);
    Memory& memory = memories_[key >> 60];  // one of sixteen
    if (memory.key.exchange(key, std::memory_order_relaxed) != key) memory.forget();
    const uint32_t turn = memory.turns.fetch_add(1, std::memory_order_relaxed);
    const bool faster = turn < kFirst ? second_first : memory.second_is_faster();
    const bool tries = turn % kTurns == kFirst;
    const bool second = tries ? !faster : faster;
    const auto start = Clock::now();
    work(second);
    if (turn == 0) return;
    memory.took(second, std::chrono::duration<float>(Clock::now() - start).count());
  }

 private:
  static constexpr uint32_t kFirst = 2, kTurns = 16;
  static constexpr float kFading = 8;

  struct Memory {
    std::atomic<uint64_t> key{0};
    std::atomic<uint32_t> turns{0};
    std::atomic<float> first{0}, second{0};  // seconds; 0: not known

    void forget() {
      turns.store(0, std::memory_order_relaxed);
      first.store(0, std::memory_order_relaxed);
      second.store(0, std::memory_order_relaxed);
    }
    bool second_is_faster() const {
      const float one = first.load(std::memory_order_relaxed);
      const float other = second.load(std::memory_order_relaxed);
      return one == 0 || (other != 0 && other < one);
    }
    // The least of late: disturbance only ever adds time.
    void took(bool is_second, float seconds) {
      std::atomic<float>& mine = is_second ? second : first;
      const float least = mine.load(std::memory_order_relaxed);
      mine.store(least == 0 || seconds < least ? seconds : least + (seconds - least) / kFading,
                 std::memory_order_relaxed);
    }
  };

  // Multiplied by 2^64 over the golden ratio, numbers differ in their first bits.
  static uint64_t key_of(const Problem& problem) {
    uint64_t key = 0;
    for (const int64_t number : problem) {
      key = (key ^ static_cast<uint64_t>(number)) * 0x9E3779B97F4A7C15u;
    }
    return key;
  }

  Memory memories_[16];
};

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_FASTER_WAY_H_
