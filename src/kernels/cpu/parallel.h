// SPDX-License-Identifier: Apache-2.0
// Parallel loops over blocks of work. Which thread takes which block is left open, so a kernel's
// result must depend on the block alone; blocks are cut by the problem's shape (and by the number
// of threads only where that moves no rounding: NsaCompress's tiles of columns,
// EmbeddingDenseBackward's too, and its owners of a narrow table).
#ifndef ACLGRAD_KERNELS_CPU_PARALLEL_H_
#define ACLGRAD_KERNELS_CPU_PARALLEL_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace aclgrad {

extern "C" {
// Calls body(context, block) once for each block in [0, blocks), on up to aclgrad_threads() threads
// in the default floating-point environment, and returns when all are done. Never throws, never
// fails: without memory for more tasks the calling thread does the rest. body must not throw.
[[gnu::visibility("default")]] void aclgrad_parallel(int64_t blocks,
                                                     void (*body)(void* context, int64_t block),
                                                     void* context) noexcept;
// Threads a parallel loop may use: ACLGRAD_THREADS, else the CPUs this process may run on.
[[gnu::visibility("default")]] int aclgrad_threads() noexcept;
// Changes that number (n >= 1). For tests and benchmarks; not while kernels run.
[[gnu::visibility("default")]] void aclgrad_use_threads(int n) noexcept;
}

// Workers that have blocks of their own; more of them help these.
inline constexpr int kMostRuns = 128;
// How many of so many threads have; none has less than a block.
constexpr int64_t run_count(int64_t blocks, int64_t threads) {
  return std::min({blocks, threads, int64_t{kMostRuns}});
}

// The first of the blocks that worker `run` of `runs` begins with: a run of consecutive ones. Who
// has none left helps the workers behind it, in turn.
constexpr int64_t run_begin(int64_t blocks, int64_t runs, int64_t run) {
  const int64_t longer = blocks % runs;
  return blocks / runs * run + (run < longer ? run : longer);
}
// The run that has block `block`; there are no more runs than blocks.
constexpr int64_t run_of(int64_t blocks, int64_t runs, int64_t block) {
  const int64_t length = blocks / runs;
  const int64_t longer = blocks % runs;
  const int64_t in_longer = longer * (length + 1);
  return block < in_longer ? block / (length + 1) : longer + (block - in_longer) / length;
}

// One block is worth handing to another thread from about 20 us of work on; a single block runs on
// the calling thread without any synchronisation.
template <class Body>
void parallel_blocks(int64_t blocks, Body&& body) {
  if (blocks == 1) {
    body(int64_t{0});
    return;
  }
  using Callable = std::remove_reference_t<Body>;
  aclgrad_parallel(
      blocks, [](void* context, int64_t block) { (*static_cast<Callable*>(context))(block); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_PARALLEL_H_
