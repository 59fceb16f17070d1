// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: memory out of two reserved address ranges, streams that are queues.
#include "runtime/backend.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

#include "runtime/cpu/awake_workers.h"
#include "runtime/cpu/machine.h"
#include "runtime/cpu/pool.h"
#include "runtime/cpu/stream.h"
#include "runtime/settings.h"

namespace aclgrad {
namespace {

// Of freed large blocks an eighth of the memory is kept, 2 GiB at most.
constexpr size_t kKeptShare = 8;
constexpr size_t kMostKept = size_t{2} << 30;

size_t most_kept(size_t total) { return std::min(total / kKeptShare, kMostKept); }

class CpuBackend final : public Backend {
 public:
  CpuBackend()
      : total_(machine::memory_info().total),
        device_pool_(most_kept(total_)),
        host_pool_(most_kept(total_)) {}

  bool has_queues() const noexcept override { return false; }
  int32_t devices() const noexcept override { return 1; }

  Status make_stream(const char*, int32_t, std::shared_ptr<Stream>& stream) override {
    stream = std::make_shared<CpuStream>();
    return kOk;
  }
  void expect_work() noexcept override { awake_workers::expect_work(); }

  void* allocate(int32_t, MemorySpace space, size_t bytes, Shortage&) noexcept override {
    return pool(space).allocate(bytes);
  }
  void release(MemorySpace space, void* memory, size_t bytes) noexcept override {
    pool(space).release(memory, bytes);
  }
  bool trim() noexcept override {
    device_pool_.trim();
    host_pool_.trim();
    return true;
  }
  bool may_hold(MemorySpace space, uintptr_t address) const noexcept override {
    return (space == MemorySpace::kDevice ? device_pool_ : host_pool_).contains(address);
  }
  AddressKind foreign_kind(const void* address) noexcept override {
    const auto number = reinterpret_cast<uintptr_t>(address);
    if (device_pool_.contains(number)) return AddressKind::kDeadDevice;
    return host_pool_.contains(number) ? AddressKind::kDeadHost : AddressKind::kUnknown;
  }

  // Overlapping blocks are allowed.
  Status copy(const char*, void* to, const void* from, size_t bytes) noexcept override {
    std::memmove(to, from, bytes);
    return kOk;
  }
  Status fill(const char*, void* to, int32_t value, size_t bytes) noexcept override {
    std::memset(to, value, bytes);
    return kOk;
  }

  size_t total_memory(MemorySpace) noexcept override { return total_; }
  bool spaces_share_memory() const noexcept override { return true; }
  size_t most_memory(int32_t, MemorySpace) noexcept override { return total_; }
  Status memory_info(const char*, int32_t, MemoryInfo& info) noexcept override {
    try {
      info = machine::memory_info();
    } catch (...) {
      info = {0, total_};
    }
    return kOk;
  }
  int64_t compute_units(int32_t) noexcept override {
    const int32_t threads = settings().threads;
    return threads > 0 ? threads : machine::processors();
  }
  int64_t cache_bytes(int32_t) noexcept override { return machine::last_level_cache(); }

  bool can_access(int32_t, int32_t) noexcept override { return false; }
  Status enable_access(const char* function, int32_t, int32_t peer) noexcept override {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: peerDeviceId is %d, expected another device",
                function, peer);
  }
  bool reaches(int32_t, const void*) noexcept override { return true; }

  Status check(const char*, int32_t) noexcept override { return kOk; }
  void reset(int32_t) noexcept override {}

 private:
  Pool& pool(MemorySpace space) {
    return space == MemorySpace::kDevice ? device_pool_ : host_pool_;
  }

  const size_t total_;
  Pool device_pool_;
  Pool host_pool_;
};

}  // namespace

Backend& cpu_backend() noexcept {
  alignas(CpuBackend) static std::byte place[sizeof(CpuBackend)];  // never destroyed
  static CpuBackend* const kBackend = new (place) CpuBackend;
  return *kBackend;
}

}  // namespace aclgrad
