// SPDX-License-Identifier: Apache-2.0
// The FP64 totals of dgamma and dbeta: those of each slab, and their sum in the slabs' order.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_SLAB_TOTALS_H_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_SLAB_TOTALS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

#include "kernels/cpu/parallel.h"
#include "ops/layer_norm_backward/tree.h"

namespace aclgrad::layer_norm_backward {

// Who ends a slab whose turn it is adds its totals to the sum, and the memory they were in is the
// next slab's: a few regions stay in the caches, instead of one a slab that is fetched, written and
// read again (16 bytes a column for 64 rows, of which 16-bit operands have 384: two cores of Zen 5,
// time beside that, bf16 8192x4096 0.90 to 0.92, f32 0.94 to 0.98). Nobody waits for another's
// turn: what ends too early, or while another adds, stays where it is, for a later one or for the
// last pass over the columns. Only where there are fewer regions than slabs may a thread have to
// wait for one.
class SlabTotals {
 public:
  // `regions`: `count` of them, one a slab or, two at least, fewer; `size` numbers each.
  SlabTotals(double* regions, int64_t count, int64_t slabs, int64_t size)
      : regions_(regions), count_(count), slabs_(slabs), size_(size) {}

  // A slab that is begun, and memory for its totals.
  struct Begun {
    int64_t slab;
    double* totals;
  };

  // What block `block` of a parallel loop over the slabs is to do. add() as in leave().
  template <class Add>
  Begun begin(int64_t block, int64_t slab_rows, Add&& add) {
    if (count_ < slabs_) return begin_next(add);
    const int64_t slab = slab_of(block, slab_rows);
    return {slab, take(slab)};
  }

  // The slab that block `block` of a parallel loop over them is. Neighbours belong to different
  // threads, so that their turns come as they end; not where slabs are so long that their totals
  // hardly count, and threads read on better from one to the next (two cores of Zen 5, 400000x24
  // 1.10 of the time by turns, 400000x64 1.04).
  int64_t slab_of(int64_t block, int64_t slab_rows) const {
    constexpr int64_t kLong = 256;
    if (slab_rows >= kLong) return block;
    const int64_t runs = run_count(slabs_, aclgrad_threads());
    const int64_t run = run_of(slabs_, runs, block);
    return (block - run_begin(slabs_, runs, run)) * runs + run;
  }

  // Memory for the totals of a slab.
  double* take(int64_t slab) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock() && free_count_ > 0) return free_[--free_count_];
    return regions_ + slab * size_;
  }

  // A slab's totals are complete. add(sum, totals) adds them.
  template <class Add>
  void leave(int64_t slab, double* totals, Add&& add) {
    at(slab).store(totals, std::memory_order_release);
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    for (int turn = 0; turn < kMostTurns && join_next(add); ++turn) {
    }
  }

  // When all slabs have been left: the sum of the first joined() ones (null: none), and the totals
  // of the others.
  int64_t joined() const { return joined_; }
  const double* sum() const { return sum_; }
  const double* totals(int64_t slab) const { return at(slab).load(std::memory_order_relaxed); }

 private:
  // Slabs begin in their order, each with memory: the first one that is not joined yet is at work
  // or complete, so that whoever waits for memory gets some.
  template <class Add>
  Begun begin_next(Add&& add) {
    for (;; std::this_thread::yield()) {
      const std::lock_guard lock(mutex_);
      while (free_count_ == 0 && fresh_ == count_ && join_next(add)) {
      }
      if (free_count_ > 0) return {begun_++, free_[--free_count_]};
      if (fresh_ < count_) return {begun_++, regions_ + fresh_++ * size_};
    }
  }

  // Adds the totals whose turn it is to the sum; false: they are not complete. With the lock.
  template <class Add>
  bool join_next(Add&& add) {
    if (joined_ == slabs_) return false;
    double* const next = at(joined_).load(std::memory_order_acquire);
    if (next == nullptr) return false;
    if (joined_++ == 0) {
      sum_ = next;
    } else {
      add(sum_, next);
      free_[free_count_++] = next;
    }
    return true;
  }

  // One slab's, and one that waited: more would keep a thread from its own work.
  static constexpr int kMostTurns = 2;
  static constexpr size_t kMost = static_cast<size_t>(kMostSlabs);

  std::atomic<double*>& at(int64_t slab) { return left_[static_cast<size_t>(slab)]; }
  const std::atomic<double*>& at(int64_t slab) const { return left_[static_cast<size_t>(slab)]; }

  double* const regions_;
  const int64_t count_, slabs_, size_;
  std::array<std::atomic<double*>, kMost> left_{};  // null: at work, or to come
  std::mutex mutex_;                                // of what follows
  int64_t begun_ = 0, fresh_ = 0;                   // of begin_next(): slabs, regions
  int64_t joined_ = 0;
  double* sum_ = nullptr;  // the first slab's region
  size_t free_count_ = 0;
  std::array<double*, kMost> free_;
};

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_SLAB_TOTALS_H_
