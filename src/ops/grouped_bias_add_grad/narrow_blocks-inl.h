// SPDX-License-Identifier: Apache-2.0
// Blocks of narrow rows (narrow-inl.h) of more than one chain: their FP64 totals, lane by lane, and
// these joined.

#if defined(ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_BLOCKS_INL_H_
#undef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_BLOCKS_INL_H_
#else
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_BLOCKS_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/cpu/wide_sums-inl.h"
#include "ops/grouped_bias_add_grad/narrow-inl.h"
#include "ops/grouped_bias_add_grad/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::grouped_bias_add_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// What is fetched while a vector of several chains is added: half of the usual for FP32
// where L2 is small ([65536, 512, 1] and 90000000 rows in 32 groups 6.4 -> 5.8 and 15.8 -> 14.4 ms
// on two Zen 3 cores, but [400000, 84, 1] 6.6 -> 7.1 and BF16 3.0 -> 3.3).
template <class T>
int64_t ahead_of_chains() {
  return sizeof(T) == sizeof(float) && has_small_l2() ? kAheadBytes / 2 : ahead_of_vectors();
}

// Where L2 is small and prefetches are dropped, FP32 is read in two places by turns, this many
// elements apart at least, without fetching: the hardware finds both streams (a loop of additions
// on Zen 3, GB/s, one stream, one that is fetched 512 bytes ahead, two 2, 8, 16 and 64 KiB apart:
// one core 24, 19, 23, 27, 30, 31, two cores 36, 33, 35, 37, 38, 39). Of 16 bits there is too much
// to add.
template <class T>
constexpr int64_t kApart = (int64_t{16} << 10) / static_cast<int64_t>(sizeof(T));

// sum_vectors() of two chains, open ones.
struct TwoSums {
  F32x16 first, second;
};
template <class T>
HWY_INLINE TwoSums sum_two(const T* first, const T* second, const Vectors& vectors) {
  TwoSums out{zero16(), zero16()};
  const T* const end = first + vectors.complete * vectors.step;
  for (; first != end; first += vectors.step, second += vectors.step) {
    out.first = add(out.first, load16(first));
    out.second = add(out.second, load16(second));
  }
  if (vectors.rest > 0) {
    out.first = add(out.first, keep_first(load16(first), vectors.rest));
    out.second = add(out.second, keep_first(load16(second), vectors.rest));
  }
  return out;
}

// FP64 totals of chains, lane by lane, in registers: kept in memory, groups of 512 rows took 1.3
// times as long (FP32 from L3, one Zen 4 core).
struct WideTotals {
  HWY_INLINE explicit WideTotals(const F32x16& chain) {
    each_wide(chain, [&](size_t lane, VecF64 wide) HWY_ATTR { part[lane / kWideLanes] = wide; });
  }
  HWY_INLINE void add(const F32x16& chain) {
    each_wide(chain, [&](size_t lane, VecF64 wide) HWY_ATTR {
      part[lane / kWideLanes] = hn::Add(part[lane / kWideLanes], wide);
    });
  }
  HWY_INLINE void store(double* lanes) const {
    for (size_t i = 0; i < kWideParts; ++i) {
      hn::StoreU(part[i], TagF64(), lanes + i * kWideLanes);
    }
  }

  VecF64 part[kWideParts];
};

// The totals of one block, lane by lane, to lanes[0..16).
template <class T>
HWY_INLINE void sum_block(const T* from, const NarrowRows& block, bool open, double* lanes) {
  const Vectors last = block.last;
  const int64_t before = block.chains_before;
  if (before == 0) return set_to(lanes, sum_vectors(from, last, open));
  const Vectors full = block.full;
  const int64_t chain = block.chain * block.cols;
  const bool open_before_last = open || last.complete > 1;
  const int64_t ahead = ahead_of_chains<T>();
  WideTotals totals(sum_vectors(from, full, before > 1 || open_before_last, ahead));
  from += chain;
  int64_t i = 1;
  if (finds_streams<T>()) {
    // The later chains' sums wait for the earlier ones to be added.
    constexpr int64_t kChains = 16;
    alignas(64) float waiting[kChains * kTogether];
    const int64_t open_ones = open_before_last ? before : before - 1;
    for (; i + 2 * kChains <= open_ones; i += 2 * kChains, from += 2 * kChains * chain) {
      for (int64_t k = 0; k < kChains; ++k) {
        const T* const first = from + k * chain;
        const TwoSums sums = sum_two(first, first + kChains * chain, full);
        totals.add(sums.first);
        store_raw(sums.second, waiting + k * kTogether);
      }
      for (int64_t k = 0; k < kChains; ++k) totals.add(load16(waiting + k * kTogether));
    }
  }
  for (; i < before; ++i, from += chain) {
    totals.add(sum_vectors(from, full, i + 1 < before || open_before_last, ahead));
  }
  totals.add(sum_vectors(from, last, open, ahead));
  totals.store(lanes);
}

// The same of two blocks of as many rows, open ones.
template <class T>
HWY_INLINE void sum_two_blocks(const T* first, const T* second, const NarrowRows& block,
                               double* first_lanes, double* second_lanes) {
  const Vectors full = block.full, last = block.last;
  const int64_t before = block.chains_before;
  const int64_t chain = block.chain * block.cols;
  TwoSums sums = sum_two(first, second, before == 0 ? last : full);
  WideTotals first_totals(sums.first), second_totals(sums.second);
  for (int64_t i = 1; i <= before; ++i) {
    first += chain;
    second += chain;
    sums = sum_two(first, second, i == before ? last : full);
    first_totals.add(sums.first);
    second_totals.add(sums.second);
  }
  first_totals.store(first_lanes);
  second_totals.store(second_lanes);
}

// Joins the sixteen lanes of each of `count` totals: sums [count, cols] to out, which may be
// `lanes` itself. Eight doubles behind them are overwritten.
HWY_INLINE void join_totals(double* lanes, int64_t count, int64_t cols, double* out) {
  constexpr int64_t kEight = kTogether / 2;
  if (narrow_fold(cols) == 1) {
    for (int64_t i = 0; i < count; ++i) std::copy_n(lanes + i * kTogether, cols, out + i * cols);
    return;
  }
  if (cols == 1) {
    // Of each, lanes i and i + 8 are joined here, the other eight over eight groups at once.
    for (int64_t i = 0; i < count; ++i) {
      for (size_t k = 0; k < kEight; k += kWideLanes) {
        const double* p = lanes + i * kTogether + k;
        hn::Store(hn::Add(hn::Load(TagF64(), p), hn::Load(TagF64(), p + kEight)), TagF64(),
                  lanes + i * kEight + k);
      }
    }
    for (int64_t i = 0; i < count; i += kEight) join_sums(lanes + i * kEight, out + i);
    return;
  }
  const auto join = [&](const double* p, int64_t upper, double* to) HWY_ATTR {
    const TagF64 d;
    VecF64 sums[kEight / kWideLanes];
    for (size_t i = 0; i < kEight / kWideLanes; ++i) {
      const double* at = p + i * kWideLanes;
      sums[i] = hn::Add(hn::LoadU(d, at), hn::LoadU(d, at + upper));
    }
    for (size_t i = 0; i < kEight / kWideLanes; ++i) hn::StoreU(sums[i], d, to + i * kWideLanes);
  };
  for (int64_t half = narrow_fold(cols) / 2; half > 1; half /= 2) {
    for (int64_t i = 0; i < count; ++i) {
      double* p = lanes + i * kTogether;
      join(p, half * cols, p);
    }
  }
  for (int64_t i = 0; i < count; ++i) join(lanes + i * kTogether, cols, out + i * cols);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::grouped_bias_add_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
