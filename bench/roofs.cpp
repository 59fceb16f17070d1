// SPDX-License-Identifier: Apache-2.0
#include "bench/roofs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <stdexcept>

#include "acl/acl.h"
#include "base/config.h"
#include "bench/gpu_roofs.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"
#include "runtime/services.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/roofs.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace aclgrad::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Bytes = hn::ScalableTag<float>;

// Lines of four vectors: enough to keep both load ports busy.
constexpr size_t kUnroll = 4;

void copy_block(const float* from, float* to, size_t count) {
  const Bytes d;
  for (size_t i = 0; i < count; i += kUnroll * hn::Lanes(d)) {
    for (size_t j = 0; j < kUnroll; ++j) {
      hn::Stream(hn::Load(d, from + i + j * hn::Lanes(d)), d, to + i + j * hn::Lanes(d));
    }
  }
  hwy::FlushStream();
}

float read_block(const float* from, size_t count) {
  const Bytes d;
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (size_t i = 0; i < count; i += kUnroll * hn::Lanes(d)) {
    a = hn::Max(a, hn::Load(d, from + i));
    b = hn::Max(b, hn::Load(d, from + i + hn::Lanes(d)));
    c = hn::Max(c, hn::Load(d, from + i + 2 * hn::Lanes(d)));
    e = hn::Max(e, hn::Load(d, from + i + 3 * hn::Lanes(d)));
  }
  return hn::GetLane(hn::Max(hn::Max(a, b), hn::Max(c, e)));
}

void add_block(const float* from, const float* other, float* to, size_t count) {
  const Bytes d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    hn::Stream(hn::Add(hn::Load(d, from + i), hn::Load(d, other + i)), d, to + i);
  }
  hwy::FlushStream();
}

// `rounds` times twelve chains: two units with latencies of four cycles need eight.
float multiply_add(int64_t rounds) {
  const Bytes d;
  constexpr size_t kChains = 12;
  decltype(hn::Zero(d)) chain[kChains];
  for (size_t i = 0; i < kChains; ++i) chain[i] = hn::Set(d, 1.0f + 0.1f * static_cast<float>(i));
  const auto factor = hn::Set(d, 0.999f);
  const auto addend = hn::Set(d, 0.001f);
  for (int64_t round = 0; round < rounds; ++round) {
    for (auto& sum : chain) sum = hn::MulAdd(sum, factor, addend);
  }
  for (size_t i = 1; i < kChains; ++i) chain[0] = hn::Add(chain[0], chain[i]);
  return hn::GetLane(hn::SumOfLanes(d, chain[0]));
}

size_t flops_a_round() { return size_t{24} * hn::Lanes(Bytes()); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::bench {
namespace {

HWY_EXPORT(copy_block);
HWY_EXPORT(read_block);
HWY_EXPORT(add_block);
HWY_EXPORT(multiply_add);
HWY_EXPORT(flops_a_round);

// Three times the last-level cache that the machine tells of (up to 512 MiB, a socket's; what one
// core reaches of it is less), and what it does not tell: two cores of Zen 5 have a cache of 32 MiB
// each while memory goes at its faster pace, and threads that read the same halves of 121 MB again
// and again found a third of them there (PyTorch's sums, ms: one copy of the data 1.4, four 2.0,
// eight 1.9; of 378 MB one copy 8.3, two 8.5, four 8.6).
int64_t beyond_cpu_caches() {
  constexpr int64_t kMib = int64_t{1} << 20;
  return std::clamp(3 * last_level_bytes(), 512 * kMib, 1536 * kMib);
}

// Bytes of a task; a multiple of every vector's.
constexpr int64_t kBlock = int64_t{1} << 18;

// Keeps what is read from being left out.
std::atomic<float> sink;

int64_t blocks_of(int64_t bytes) { return (bytes + kBlock - 1) / kBlock; }

float* floats(uint8_t* p) { return reinterpret_cast<float*>(p); }
constexpr size_t kFloats = static_cast<size_t>(kBlock) / sizeof(float);

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Six parts of whole blocks, so that a copy is three after three and an addition two, two and two.
class CpuRoofs final : public Roofs {
 public:
  explicit CpuRoofs(int64_t bytes)
      : bytes_(blocks_of((std::max(bytes, beyond_cpu_caches()) + 5) / 6) * 6 * kBlock),
        part_(static_cast<double>(bytes) / static_cast<double>(bytes_)),
        memory_(static_cast<size_t>(bytes_)) {}

  double copy() override {
    uint8_t* from = memory_.get();
    uint8_t* to = from + bytes_ / 2;
    const auto run = HWY_DYNAMIC_DISPATCH(copy_block);
    return seconds_of_blocks(bytes_ / 2, [&](int64_t block) {
      run(floats(from + block * kBlock), floats(to + block * kBlock), kFloats);
    });
  }

  double read() override {
    uint8_t* from = memory_.get();
    const auto run = HWY_DYNAMIC_DISPATCH(read_block);
    return seconds_of_blocks(bytes_, [&](int64_t block) {
      sink.store(run(floats(from + block * kBlock), kFloats), std::memory_order_relaxed);
    });
  }

  double add() override {
    uint8_t* from = memory_.get();
    uint8_t* other = from + bytes_ / 3;
    uint8_t* to = other + bytes_ / 3;
    const auto run = HWY_DYNAMIC_DISPATCH(add_block);
    return seconds_of_blocks(bytes_ / 3, [&](int64_t block) {
      run(floats(from + block * kBlock), floats(other + block * kBlock),
          floats(to + block * kBlock), kFloats);
    });
  }

 private:
  template <class Body>
  double seconds_of_blocks(int64_t bytes, const Body& body) const {
    const auto begin = std::chrono::steady_clock::now();
    parallel_blocks(bytes / kBlock, body);
    return seconds_since(begin) * part_;
  }

  int64_t bytes_;
  double part_;  // of a problem's bytes in these
  DeviceMemory memory_;
};

// "Intel(R) Xeon(R) Processor, family 6 model 207": virtual machines often have no better name.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string name = "unknown processor";
  std::string numbers;
  for (std::string line; std::getline(file, line) && !line.empty();) {  // the first one's
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const std::string value = line.substr(colon + 2);
    if (key == "model name") name = value;
    if (key == "cpu family") numbers += ", family " + value;
    if (key == "model") numbers += " model " + value;
  }
  return name + numbers;
}

// With the widest vectors of the instruction set in use; the best of some turns.
double cpu_flops(int64_t rounds, int turns) {
  const auto run = HWY_DYNAMIC_DISPATCH(multiply_add);
  const auto round_flops = static_cast<double>(HWY_DYNAMIC_DISPATCH(flops_a_round)());
  const int threads = aclgrad_threads();
  double best = 0;
  for (int turn = 0; turn < turns; ++turn) {
    const auto begin = std::chrono::steady_clock::now();
    parallel_blocks(threads, [&](int64_t) { sink.store(run(rounds), std::memory_order_relaxed); });
    best =
        std::max(best, round_flops * static_cast<double>(rounds) * threads / seconds_since(begin));
  }
  return best;
}

}  // namespace

DeviceMemory::DeviceMemory(size_t bytes) {
  if (bytes == 0) return;
  if (aclrtMalloc(&memory_, bytes, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS ||
      aclrtMemset(memory_, bytes, 0, bytes) != ACL_SUCCESS) {
    throw std::runtime_error("no memory for the roofs");
  }
}

DeviceMemory::~DeviceMemory() {
  if (memory_ != nullptr) static_cast<void>(aclrtFree(memory_));
}

std::unique_ptr<Roofs> make_roofs(int64_t bytes, [[maybe_unused]] size_t copies) {
  if constexpr (config::kHasCuda) {
    if (aclgrad_has_device_queues()) return make_gpu_roofs(bytes, copies);
  }
  return std::make_unique<CpuRoofs>(bytes);
}

int64_t bytes_beyond_caches() {
  if constexpr (config::kHasCuda) {
    if (aclgrad_has_device_queues()) return bytes_beyond_gpu_caches();
  }
  return beyond_cpu_caches();
}

Machine this_machine() {
  if constexpr (config::kHasCuda) {
    if (aclgrad_has_device_queues()) return this_gpu();
  }
  constexpr int64_t kRounds = 1000000;
  return {cpu_name(), aclgrad_active_target(), aclgrad_threads(), cpu_flops(kRounds, 5)};
}

double flops_now() {
  constexpr int64_t kRounds = 100000;
  return aclgrad_has_device_queues() ? 0 : cpu_flops(kRounds, 3);
}

}  // namespace aclgrad::bench
#endif  // HWY_ONCE
