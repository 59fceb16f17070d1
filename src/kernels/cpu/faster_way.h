// SPDX-License-Identifier: Apache-2.0
// Two ways through the same work, with the same bits, of which the machine's memory favours now one
// and now the other. Runs are timed, and problems that are alike go by the way that was faster of
// late.
#ifndef ACLGRAD_KERNELS_CPU_FASTER_WAY_H_
#define ACLGRAD_KERNELS_CPU_FASTER_WAY_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace aclgrad {

// May be used by several threads at a time: what they overwrite of each other costs speed at most.
template <class Clock = std::chrono::steady_clock>
class FasterWay {
 public:
  // What problems that are alike have in common.
  using Key = std::array<int64_t, 4>;

  // Calls work(second) once. `amount` of work, 1 or more, in any unit: problems that are alike may
  // differ in it. The first two runs go by the way that `second_first` names, because a first one
  // finds nothing in the caches, the third one by the other way, each later one by the faster. The
  // slower one is tried again every kTurns runs, and when a run is faster than those of late: a
  // memory changes its pace (two cores of Zen 5: after some seconds to ten minutes).
  template <class Work>
  void run(const Key& key, int64_t amount, bool second_first, Work&& work) {
    Memory& memory = memory_of(key);
    const uint32_t turn = memory.turns.fetch_add(1, std::memory_order_relaxed);
    const bool second = turn < 2 ? second_first : memory.second_is_next(turn % kTurns == 0);
    const auto start = Clock::now();
    work(second);
    const std::chrono::duration<float> took = Clock::now() - start;
    memory.took(second, took.count() / static_cast<float>(amount));
  }

 private:
  // A way that takes 1.2 times as long costs 1.3 % then.
  static constexpr uint32_t kTurns = 16;
  // With which five runs of 1.35 times the least make up for a lead of 1.15.
  static constexpr float kFading = 8;
  // A disturbance is over after a run or two; less than this part of the least is another pace.
  static constexpr float kAnotherPace = 0.875F;

  struct Memory {
    std::atomic<uint64_t> key{0};
    std::atomic<uint32_t> turns{0};
    std::atomic<float> first{0}, second{0};  // seconds a unit, the least of late; 0: unknown

    // The way that is not known, else the faster one, or, if that is asked for, the slower one.
    bool second_is_next(bool slower) const {
      const float one = first.load(std::memory_order_relaxed);
      const float other = second.load(std::memory_order_relaxed);
      if (one == 0 || other == 0) return one != 0;
      return (other < one) != slower;
    }
    // The least, because disturbance only ever adds time; but it fades. What is known of the other
    // way is worth nothing any more where the machine has become faster.
    void took(bool is_second, float seconds) {
      std::atomic<float>& mine = is_second ? second : first;
      std::atomic<float>& other = is_second ? first : second;
      const float least = mine.load(std::memory_order_relaxed);
      if (seconds < kAnotherPace * least) other.store(0, std::memory_order_relaxed);
      mine.store(least == 0 || seconds < least ? seconds : least + (seconds - least) / kFading,
                 std::memory_order_relaxed);
    }
  };

  // The one that has the key, else one that begins anew.
  Memory& memory_of(const Key& key) {
    const uint64_t hash = hash_of(key);
    for (Memory& memory : memories_) {
      if (memory.key.load(std::memory_order_relaxed) == hash) return memory;
    }
    const uint32_t replaced = replaced_.fetch_add(1, std::memory_order_relaxed);
    Memory& memory = memories_[replaced % memories_.size()];
    memory.turns.store(0, std::memory_order_relaxed);
    memory.first.store(0, std::memory_order_relaxed);
    memory.second.store(0, std::memory_order_relaxed);
    memory.key.store(hash, std::memory_order_relaxed);
    return memory;
  }
  // Multiplied by 2^64 over the golden ratio.
  static uint64_t hash_of(const Key& key) {
    uint64_t hash = 0;
    for (const int64_t number : key) {
      hash = (hash ^ static_cast<uint64_t>(number)) * 0x9E3779B97F4A7C15u;
    }
    return hash;
  }

  std::array<Memory, 32> memories_;
  std::atomic<uint32_t> replaced_{0};
};

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_FASTER_WAY_H_
