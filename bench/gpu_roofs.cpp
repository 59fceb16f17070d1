// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu_roofs.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/checked.h"
#include "bench/bench.h"
#include "bench/device_clock.h"
#include "runtime/services.h"

namespace aclgrad::bench {
namespace {

// Three times the L2 cache, and never less than this: what lies between is no use to anybody.
constexpr int64_t kLeastBytes = int64_t{256} << 20;

// Turns of one measurement, each of another part of the memory: as many as an operator has, for the
// first one waits longest for its kernel.
constexpr double kTurnSeconds = 0.02;
constexpr int kMostTurns = 1000;

using Launcher = std::function<CudaAnswer(const CudaQueue&)>;

// A kernel of the bench in a stream of the library; handed over before launch() returns.
class Kernel final : public Work {
 public:
  explicit Kernel(Launcher launcher) : launcher_(std::move(launcher)) {}
  void run(DataErrors&) noexcept override {}
  Status submit(const char* function, DeviceQueue& queue) override {
    return queue.launched(function, launcher_({queue.native(), queue.native_device()}));
  }

 private:
  Launcher launcher_;
};

int64_t capability(aclDeviceInfo info) {
  int64_t value = 0;
  require(aclGetDeviceCapability(0, info, &value), "aclGetDeviceCapability");
  return value;
}

class OwnStream {
 public:
  OwnStream() { require(aclrtCreateStream(&stream_), "aclrtCreateStream"); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { static_cast<void>(aclrtDestroyStream(stream_)); }
  aclrtStream get() const { return stream_; }
  void launch(Launcher launcher) const {
    require(aclgrad_enqueue("bench", stream_, new Kernel(std::move(launcher)), nullptr), "a roof");
  }

 private:
  aclrtStream stream_ = nullptr;
};

class GpuRoofs final : public Roofs {
 public:
  // Six parts of whole units, so that a copy is three after three and an addition two, two and two.
  GpuRoofs(int64_t bytes, size_t copies)
      : bytes_(ceil_div(bytes, 6 * kRoofUnit) * 6 * kRoofUnit),
        part_(static_cast<double>(bytes) / static_cast<double>(bytes_)),
        copies_(static_cast<int64_t>(copies)),
        memory_(static_cast<size_t>(bytes_ * copies_ + kRoofUnit)),
        clock_(stream_.get()) {}

  double copy() override {
    return seconds_of([this](uint8_t* from, const CudaQueue& queue) {
      return launch_copy(from, from + bytes_ / 2, bytes_ / 2, queue);
    });
  }
  double read() override {
    return seconds_of([this](uint8_t* from, const CudaQueue& queue) {
      return launch_read(from, bytes_, memory_.get() + bytes_ * copies_, queue);
    });
  }
  double add() override {
    return seconds_of([this](uint8_t* from, const CudaQueue& queue) {
      return launch_add(from, from + bytes_ / 3, from + bytes_ / 3 * 2, bytes_ / 3, queue);
    });
  }

 private:
  template <class Launch>
  double seconds_of(const Launch& launch) {
    const auto turn = [&] {
      uint8_t* const from = memory_.get() + next_ * bytes_;
      next_ = next_ + 1 == copies_ ? 0 : next_ + 1;
      stream_.launch([=](const CudaQueue& queue) { return launch(from, queue); });
    };
    const double one = std::max(clock_.seconds_of(turn, 1), 1e-7);
    return clock_.seconds_of(turn,
                             std::clamp(static_cast<int>(kTurnSeconds / one), 1, kMostTurns)) *
           part_;
  }

  int64_t bytes_;
  double part_;  // of a problem's bytes in these
  int64_t copies_;
  int64_t next_ = 0;
  DeviceMemory memory_;
  OwnStream stream_;
  DeviceClock clock_;
};

double gpu_peak_flops(int64_t multiprocessors) {
  constexpr double kLeastSeconds = 200e-6;     // against a launch's 5 us
  const int64_t blocks = multiprocessors * 8;  // 2048 threads on each
  const OwnStream stream;
  DeviceClock clock(stream.get());
  const DeviceMemory sink(kRoofUnit);
  double best = 0;
  double seconds = 0;
  for (int rounds = 16; seconds < kLeastSeconds; rounds *= 2) {
    const auto turn = [&] {
      stream.launch([&](const CudaQueue& queue) {
        return launch_multiply_adds(blocks, rounds, sink.get(), queue);
      });
    };
    seconds = clock.seconds_of(turn, 1);
    best = std::max(best, flops_of_round() * rounds * static_cast<double>(blocks) / seconds);
  }
  return best;
}

}  // namespace

std::unique_ptr<Roofs> make_gpu_roofs(int64_t bytes, size_t copies) {
  return std::make_unique<GpuRoofs>(bytes, copies);
}

int64_t bytes_beyond_gpu_caches() {
  return std::max(3 * capability(ACL_DEVICE_INFO_L2_SIZE), kLeastBytes);
}

Machine this_gpu() {
  char name[256];
  int device = 0;  // as CUDA counts them
  OwnStream().launch([&](const CudaQueue& queue) {
    device = queue.device;
    return 0;
  });
  const int64_t multiprocessors = capability(ACL_DEVICE_INFO_AI_CORE_NUM);
  return {gpu_name(device, name), "cuda", static_cast<int>(multiprocessors),
          gpu_peak_flops(multiprocessors)};
}

}  // namespace aclgrad::bench
