// SPDX-License-Identifier: Apache-2.0
// Launches of kernels: what one may ask for, the blocks of its grid one after the other, and what
// becomes of its faults.
#include "launches.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "answers.h"
#include "cuda_runtime.h"
#include "device_memory.h"
#include "devices.h"
#include "fibers.h"
#include "streams.h"

using emulated::answer_first;
using emulated::backward;
using emulated::device_memory;
using emulated::kMostShared;
using emulated::noted;

namespace {

// Bytes of shared memory that every kernel may have.
constexpr size_t kUsualShared = size_t{48} << 10;

// What kernels have asked for.
struct SharedSizes {
  std::mutex mutex;
  std::map<const void*, size_t> of;
};
SharedSizes& shared_sizes() {
  static auto* const kSizes = new SharedSizes;
  return *kSizes;
}
bool shared_fits(const void* kernel, size_t bytes) {
  if (bytes <= kUsualShared) return true;
  SharedSizes& sizes = shared_sizes();
  const std::lock_guard lock(sizes.mutex);
  const auto found = sizes.of.find(kernel);
  return found != sizes.of.end() && bytes <= found->second;
}

void on_fault(int number, siginfo_t* info, void* context) {
  if (device_memory().contains(info->si_addr)) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    emulated::leave_kernel(info->si_addr);
  }
  // The host's own fault: as if this handler were not there.
  signal(number, SIG_DFL);
  static_cast<void>(context);
}

// ACLGRAD_EMULATED_BLOCKS=n: a grid has n blocks at most. Kernels of the library take what their
// grid does not cover in further turns (kernels/cuda/geometry.h); problems of tests never need one.
unsigned most_blocks() {
  static const unsigned kMost = [] {
    const char* const value = std::getenv("ACLGRAD_EMULATED_BLOCKS");
    return value == nullptr ? ~0u : static_cast<unsigned>(std::strtoul(value, nullptr, 10));
  }();
  return kMost;
}

std::string run_grid(const cudaLaunchConfig_t& asked, const std::function<void()>& thread_of_kernel,
                     cudaError_t& kind) {
  cudaLaunchConfig_t config = asked;
  config.gridDim.x = std::min(config.gridDim.x, most_blocks());
  const dim3& grid = config.gridDim;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        const uint3 at =
            backward() ? uint3{grid.x - 1 - x, grid.y - 1 - y, grid.z - 1 - z} : uint3{x, y, z};
        std::string error = emulated::run_block(config, at, thread_of_kernel, kind);
        if (!error.empty()) return error;
      }
    }
  }
  return "";
}

}  // namespace

namespace emulated {

void handle_faults() {
  static const bool kDone = [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    return true;
  }();
  static_cast<void>(kDone);
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread_of_kernel) {
  const dim3& block = config.blockDim;
  const dim3& grid = config.gridDim;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const bool good = threads >= 1 && threads <= kMostThreads && grid.x >= 1 && grid.y >= 1 &&
                    grid.z >= 1 && grid.x <= 0x7FFFFFFFu && grid.y <= 65535 && grid.z <= 65535 &&
                    shared_fits(kernel, config.dynamicSmemBytes);
  if (!good) return noted(cudaErrorInvalidConfiguration);
  const int device = current_device();
  count_launch();
  return queue(config.stream, [config, device, body = std::move(thread_of_kernel)] {
    if (sticky(device) != cudaSuccess) return;
    cudaError_t kind = cudaErrorLaunchFailure;
    const std::string error = run_grid(config, body, kind);
    if (error.empty()) return;
    set_fault(device, kind, error);
  });
}

}  // namespace emulated

extern "C" {

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* kernel) {
  if (const cudaError_t error = answer_first(); error != cudaSuccess) return error;
  SharedSizes& sizes = shared_sizes();
  const std::lock_guard lock(sizes.mutex);
  const auto found = sizes.of.find(kernel);
  const size_t most = found == sizes.of.end() ? kUsualShared : found->second;
  *out = {0, static_cast<int>(most)};
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (const cudaError_t error = answer_first(); error != cudaSuccess) return error;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) > kMostShared) {
    return noted(cudaErrorInvalidValue);
  }
  SharedSizes& sizes = shared_sizes();
  const std::lock_guard lock(sizes.mutex);
  size_t& most = sizes.of[kernel];
  // CUDA allows it, but another thread may be about to launch with the larger size.
  if (static_cast<size_t>(value) < most) return noted(cudaErrorInvalidValue);
  most = static_cast<size_t>(value);
  return cudaSuccess;
}

}  // extern "C"
