// SPDX-License-Identifier: Apache-2.0
// A fiber starts by way of makecontext(), and is left and entered again by _longjmp(), which makes
// no system call. Fibers wait for the next block when theirs has ended, so that they are made once.
#include "fibers.h"

#include <ucontext.h>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace emulated {

bool backward() {
  static const bool kBackward = [] {
    const char* const value = std::getenv("ACLGRAD_EMULATED_ORDER");
    return value != nullptr && std::strcmp(value, "backward") == 0;
  }();
  return kBackward;
}

namespace {

constexpr size_t kStackBytes = size_t{128} << 10;

enum class State : uint8_t { kReady, kAtBarrier, kAtMeeting, kDone };

// A copy to shared memory that its thread has not waited for.
struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Fiber {
  jmp_buf place;
  ucontext_t start;
  std::unique_ptr<char[]> stack;
  bool started = false;
  State state = State::kDone;
  Position position;
  // What it brings to a meeting.
  unsigned mask = 0;
  unsigned source = 0;
  Exchange exchange = Exchange::kSync;
  uint64_t value = 0;
  uint64_t result = 0;
  std::vector<Copy> copies;                // of the open group
  std::deque<std::vector<Copy>> arriving;  // groups that are closed
};

std::string text_of(const uint3& at) {
  return "(" + std::to_string(at.x) + "," + std::to_string(at.y) + "," + std::to_string(at.z) + ")";
}
std::string name_of(const Fiber& fiber) {
  return "block " + text_of(fiber.position.block) + " thread " + text_of(fiber.position.thread);
}
const char* doing(const Fiber& fiber) {
  switch (fiber.state) {
    case State::kAtBarrier:
      return "waits at __syncthreads";
    case State::kAtMeeting:
      return fiber.exchange == Exchange::kSync      ? "waits at __syncwarp"
             : fiber.exchange == Exchange::kShuffle ? "waits at a shuffle"
                                                    : "waits at a ballot";
    case State::kDone:
      return "has ended";
    case State::kReady:
      break;
  }
  return "runs";
}

class Block {
 public:
  std::string run(const cudaLaunchConfig_t& config, const uint3& block,
                  const std::function<void()>& body, cudaError_t& kind) {
    body_ = &body;
    error_.clear();
    kind_ = cudaErrorLaunchFailure;
    count_ = config.blockDim.x * config.blockDim.y * config.blockDim.z;
    if (fibers_.size() < count_) fibers_.resize(count_);
    // As it might be: NaNs.
    shared_.assign(config.dynamicSmemBytes / sizeof(uint4) + 1, uint4{~0u, ~0u, ~0u, ~0u});
    for (unsigned i = 0; i < count_; ++i) prepare(i, config, block);
    while (error_.empty() && run_ready_ones()) {
    }
    if (error_.empty()) error_ = stuck();
    // Left behind in the middle of a kernel: such a fiber cannot be used again.
    if (!error_.empty()) fibers_.clear();
    kind = kind_;
    return error_;
  }

  const Position& here() const { return current_->position; }
  bool running() const { return current_ != nullptr; }

  void barrier() {
    current_->state = State::kAtBarrier;
    if (++at_barrier_ == count_) {
      at_barrier_ = 0;
      for (unsigned i = 0; i < count_; ++i) fibers_[i]->state = State::kReady;
    }
    yield();
  }

  uint64_t meet(unsigned mask, Exchange exchange, uint64_t value, unsigned source) {
    Fiber& me = *current_;
    const unsigned lane = index_ % kWarp;
    if ((mask >> lane & 1) == 0) {
      fail(name_of(me) + ": lane " + std::to_string(lane) + " is not in the mask it gives");
    }
    me.mask = mask;
    me.exchange = exchange;
    me.value = value;
    me.source = source;
    me.state = State::kAtMeeting;
    if (complete(index_ - lane, me)) release(index_ - lane, mask);
    yield();
    return me.result;
  }

  std::byte* shared_memory() { return reinterpret_cast<std::byte*>(shared_.data()); }

  // Nothing of it is there before it is waited for.
  void copy_async(void* to, const void* from, size_t bytes) {
    const auto end = reinterpret_cast<uintptr_t>(to) + bytes;
    const auto begin = reinterpret_cast<uintptr_t>(shared_.data());
    if (end - bytes < begin || end > begin + (shared_.size() - 1) * sizeof(uint4)) {
      fail(name_of(*current_) + " copies behind its shared memory");
    }
    if (end % bytes != 0 || reinterpret_cast<uintptr_t>(from) % bytes != 0) {
      fail(name_of(*current_) + " copies from or to an address that is not aligned");
    }
    std::memset(to, 0xFF, bytes);
    current_->copies.push_back({to, from, bytes});
  }
  void commit_copies() { current_->arriving.push_back(std::move(current_->copies)); }
  void wait_copies(size_t pending) {
    while (current_->arriving.size() > pending) {
      for (const Copy& copy : current_->arriving.front()) {
        std::memcpy(copy.to, copy.from, copy.bytes);
      }
      current_->arriving.pop_front();
    }
  }

  void illegal_address(const void* address) {
    char text[64];
    std::snprintf(text, sizeof text, " touches %p, which is in no allocation", address);
    kind_ = cudaErrorIllegalAddress;
    fail(name_of(*current_) + text);
  }
  void misaligned_address(const void* address) {
    char text[64];
    std::snprintf(text, sizeof text, " touches %p, which is not aligned for it", address);
    kind_ = cudaErrorMisalignedAddress;
    fail(name_of(*current_) + text);
  }

 private:
  void prepare(unsigned i, const cudaLaunchConfig_t& config, const uint3& block) {
    if (fibers_[i] == nullptr) fibers_[i] = std::make_unique<Fiber>();
    const dim3& size = config.blockDim;
    fibers_[i]->position = {{i % size.x, i / size.x % size.y, i / size.x / size.y},
                            block,
                            config.blockDim,
                            config.gridDim};
    fibers_[i]->state = State::kReady;
    fibers_[i]->copies.clear();
    fibers_[i]->arriving.clear();
    at_barrier_ = 0;
  }

  // A warp goes as far as it gets before the next one does.
  bool run_ready_ones() {
    bool any = false;
    const unsigned warps = (count_ + kWarp - 1) / kWarp;
    for (unsigned turn = 0; turn < warps && error_.empty(); ++turn) {
      const unsigned warp = backward() ? warps - 1 - turn : turn;
      for (bool more = true; more && error_.empty();) {
        more = false;
        for (unsigned place = 0; place < kWarp && error_.empty(); ++place) {
          const unsigned i = warp * kWarp + (backward() ? kWarp - 1 - place : place);
          if (i >= count_ || fibers_[i]->state != State::kReady) continue;
          any = more = true;
          enter(i);
        }
      }
    }
    return any;
  }

  // Why nothing goes on although not all have ended.
  std::string stuck() const {
    for (unsigned i = 0; i < count_; ++i) {
      const Fiber& waiting = *fibers_[i];
      if (waiting.state == State::kDone) continue;
      const bool barrier = waiting.state == State::kAtBarrier;
      const unsigned first = barrier ? 0 : i / kWarp * kWarp;
      const unsigned end = barrier ? count_ : first + kWarp;
      for (unsigned j = first; j < end; ++j) {
        if (!barrier && (waiting.mask >> (j - first) & 1) == 0) continue;
        if (j >= count_) {
          return name_of(waiting) + " " + doing(waiting) + " for lane " +
                 std::to_string(j - first) + ", which the block does not have";
        }
        const Fiber& other = *fibers_[j];
        if (barrier ? other.state == State::kAtBarrier : same_meeting(other, waiting)) continue;
        return name_of(waiting) + " " + doing(waiting) + " for thread " +
               text_of(other.position.thread) + ", which " + doing(other);
      }
    }
    return "";
  }

  static bool same_meeting(const Fiber& a, const Fiber& b) {
    return a.state == State::kAtMeeting && a.mask == b.mask && a.exchange == b.exchange;
  }
  bool complete(unsigned first, const Fiber& me) const {
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((me.mask >> lane & 1) == 0) continue;
      if (first + lane >= count_ || !same_meeting(*fibers_[first + lane], me)) return false;
    }
    return true;
  }
  void release(unsigned first, unsigned mask) {
    uint64_t ballot = 0;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((mask >> lane & 1) != 0 && fibers_[first + lane]->value != 0) ballot |= 1u << lane;
    }
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      Fiber& fiber = *fibers_[first + lane];
      if (fiber.exchange == Exchange::kBallot) fiber.result = ballot;
      if (fiber.exchange == Exchange::kShuffle) {
        if ((mask >> fiber.source & 1) == 0) {
          fail(name_of(fiber) + " shuffles from lane " + std::to_string(fiber.source) +
               ", which is not in the mask");
        }
        fiber.result = fibers_[first + fiber.source]->value;
      }
      fiber.state = State::kReady;
    }
  }

  // Of a running fiber: back to run(), for good.
  [[noreturn]] void fail(std::string text) {
    error_ = std::move(text);
    current_ = nullptr;
    _longjmp(scheduler_, 1);
  }

  void enter(unsigned i) {
    index_ = i;
    current_ = fibers_[i].get();
    if (_setjmp(scheduler_) == 0) {
      if (current_->started) _longjmp(current_->place, 1);
      start();
    }
    current_ = nullptr;
  }
  void yield() {
    if (_setjmp(current_->place) == 0) _longjmp(scheduler_, 1);
  }
  void start() {
    Fiber& fiber = *current_;
    fiber.started = true;
    fiber.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = kStackBytes;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, &Block::loop, 0);
    setcontext(&fiber.start);
  }
  static void loop();

  const std::function<void()>* body_ = nullptr;
  std::vector<uint4> shared_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* current_ = nullptr;
  unsigned index_ = 0;
  unsigned count_ = 0;
  unsigned at_barrier_ = 0;
  std::string error_;
  cudaError_t kind_ = cudaErrorLaunchFailure;
  jmp_buf scheduler_;
};

Block& block() {
  static thread_local Block block_of_thread;
  return block_of_thread;
}

// One block after the other.
void Block::loop() {
  Block& self = emulated::block();
  for (;;) {
    (*self.body_)();
    self.current_->state = State::kDone;
    self.yield();
  }
}

}  // namespace

const Position& here() { return block().here(); }
void barrier() { block().barrier(); }
uint64_t meet(unsigned mask, Exchange exchange, uint64_t value, unsigned source) {
  return block().meet(mask, exchange, value, source);
}

std::byte* shared_memory() { return block().shared_memory(); }
void copy_async(void* to, const void* from, size_t bytes) { block().copy_async(to, from, bytes); }
void commit_copies() { block().commit_copies(); }
void wait_copies(size_t pending) { block().wait_copies(pending); }

void leave_kernel(const void* address) {
  if (block().running()) block().illegal_address(address);
}

std::string run_block(const cudaLaunchConfig_t& config, const uint3& at,
                      const std::function<void()>& thread_of_kernel, cudaError_t& kind) {
  return block().run(config, at, thread_of_kernel, kind);
}

}  // namespace emulated

// Kernels are compiled with -fsanitize=alignment, which calls this before an access to `address`
// that is not aligned for its type; the rest of UndefinedBehaviorSanitizer is not needed for it.
extern "C" [[gnu::visibility("default")]] void __ubsan_handle_type_mismatch_v1(const void* place,
                                                                               const void* address);
void __ubsan_handle_type_mismatch_v1(const void*, const void* address) {
  if (emulated::block().running()) emulated::block().misaligned_address(address);
  std::fprintf(stderr, "misaligned access to %p outside a kernel\n", address);
  std::abort();
}
