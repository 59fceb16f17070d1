// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/parallel.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace aclgrad::bench {
namespace {

using Clock = std::chrono::steady_clock;

void require(int status, const char* what) {
  if (status == 0) return;
  const char* message = aclGetRecentErrMsg();
  throw std::runtime_error(std::string(what) + " answered " + std::to_string(status) + ": " +
                           (message == nullptr ? "" : message));
}

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) {
    if (bytes != 0) require(aclrtMalloc(&memory_, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    if (bytes != 0) require(aclrtMemset(memory_, bytes, 0, bytes), "aclrtMemset");
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    if (memory_ != nullptr) static_cast<void>(aclrtFree(memory_));
  }
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

// memcpy of glibc streams from its own threshold on, which need not be ours.
void copy_streaming(uint8_t* to, const uint8_t* from, size_t count) {
#if defined(__SSE2__)
  size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    for (size_t j = i; j < i + 64; j += 16) {
      const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + j), v);
    }
  }
  std::memcpy(to + i, from + i, count - i);
  _mm_sfence();
#else
  std::memcpy(to, from, count);
#endif
}

// Half of the bytes are read and half are written, by all threads.
class Copy {
 public:
  explicit Copy(int64_t bytes) : half_(static_cast<size_t>(bytes) / 2), from_(half_), to_(half_) {}

  void operator()() const {
    constexpr size_t kBlock = size_t{1} << 18;
    const bool stream = outputs_should_stream(static_cast<int64_t>(half_));
    parallel_blocks(static_cast<int64_t>((half_ + kBlock - 1) / kBlock), [&](int64_t block) {
      const size_t begin = static_cast<size_t>(block) * kBlock;
      const size_t count = std::min(kBlock, half_ - begin);
      auto* const to = static_cast<uint8_t*>(to_.get()) + begin;
      const auto* const from = static_cast<const uint8_t*>(from_.get()) + begin;
      if (stream) {
        copy_streaming(to, from, count);
      } else {
        std::memcpy(to, from, count);
      }
    });
  }

 private:
  size_t half_;
  DeviceMemory from_;
  DeviceMemory to_;
};

class Call {
 public:
  Call(const Problem& problem, aclrtStream stream)
      : problem_(problem),
        stream_(stream),
        workspace_size_(planned(problem)),
        workspace_(workspace_size_) {}

  void operator()() const {
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    require(problem_.plan(&size, &executor), "phase one");
    require(problem_.execute(workspace_.get(), size, executor, stream_), "phase two");
    require(aclrtSynchronizeStream(stream_), "aclrtSynchronizeStream");
  }

 private:
  static uint64_t planned(const Problem& problem) {
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    require(problem.plan(&size, &executor), "phase one");
    require(aclDestroyAclOpExecutor(executor), "aclDestroyAclOpExecutor");
    return size;
  }

  const Problem& problem_;
  aclrtStream stream_;
  uint64_t workspace_size_;
  DeviceMemory workspace_;
};

template <class Fn>
double seconds_of(Fn&& fn, int repeats) {
  const auto begin = Clock::now();
  for (int i = 0; i < repeats; ++i) fn();
  return std::chrono::duration<double>(Clock::now() - begin).count() / repeats;
}

template <class Fn>
int repeats_for(Fn&& fn, double seconds) {
  fn();
  const double once = std::max(seconds_of(fn, 1), 1e-8);
  return static_cast<int>(std::clamp(seconds / once, 1.0, 1e6));
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Timing measure(const Problem& problem, aclrtStream stream, const Effort& effort) {
  const Call call(problem, stream);
  const Copy copy(std::max<int64_t>(problem.bytes, 128));
  const int call_repeats = repeats_for(call, effort.round_seconds);
  const int copy_repeats = repeats_for(copy, effort.round_seconds);
  std::vector<double> calls;
  std::vector<double> copies;
  for (int round = 0; round < effort.rounds; ++round) {
    copies.push_back(seconds_of(copy, copy_repeats));
    calls.push_back(seconds_of(call, call_repeats));
  }
  return {median(calls), median(copies)};
}

}  // namespace aclgrad::bench
