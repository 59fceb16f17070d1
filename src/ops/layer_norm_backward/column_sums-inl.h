// SPDX-License-Identifier: Apache-2.0
// dgamma and dbeta from what the second visit leaves: chains of one block of rows, or FP64 totals.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_COLUMN_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_COLUMN_SUMS_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_COLUMN_SUMS_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_COLUMN_SUMS_INL_H_
#endif

#include <algorithm>

#include "base/dtype.h"
#include "kernels/cpu/strips-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/layer_norm_backward/columns-inl.h"
#include "ops/layer_norm_backward/job.h"
#include "ops/layer_norm_backward/slab_totals.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Columns of which one task joins what is left, and writes the sums.
inline constexpr int64_t kFinishColumns = 256;

// The final sums of columns [begin, end) in strip order: sums(v) are those of vector v.
template <class T, class Sums>
HWY_INLINE void write_sums(const View& view, void* base, int64_t begin, int64_t end,
                           const Sums& sums) {
  const auto count = static_cast<size_t>(end - begin);
  const auto each_strip = [&](auto&& put) HWY_ATTR {
    alignas(64) float in_order[kStrip<T>];
    for (size_t at = 0; at < count; at += kStrip<T>) {
      Strip<T> strip;
      for (size_t i = 0; i < kStripVectors<T>; ++i) strip.v[i] = sums(at / kLanes + i);
      store_in_order<T>(strip, in_order);
      put(in_order, at, std::min(count - at, kStrip<T>));
    }
  };
  visit_float(view.dtype, [&](auto type) HWY_ATTR {
    using Out = decltype(type);
    if (view.rank == 1 && view.strides[0] == 1) {
      Out* const out = static_cast<Out*>(base) + begin;
      each_strip([out](const float* from, size_t at, size_t columns) HWY_ATTR {
        for (size_t i = 0; i < columns; i += kLanes) {
          Store::write(out + at + i, std::min(kLanes, columns - i), load16(from + i));
        }
      });
      return;
    }
    const RowOffsets places(view, view.rank);
    auto* const out = static_cast<Out*>(base);
    each_strip([&](const float* from, size_t at, size_t columns) {
      for (size_t i = 0; i < columns; ++i) {
        out[places(begin + static_cast<int64_t>(at + i))] = from_float<Out>(from[i]);
      }
    });
  });
}

// `totals` holds dgamma, then dbeta `stride` further on. They are added to `onto`: 0, or -0 to
// leave a total as it is that is -0 (a chain of terms that underflow).
template <class T>
void write_column_sums(const Job& job, int64_t begin, int64_t end, const double* totals,
                       int64_t stride, float onto = 0.0f) {
  const Problem& problem = job.problem;
  const auto write = [&](const View& view, void* base, const double* from) HWY_ATTR {
    write_sums<T>(view, base, begin, end,
                  [&](size_t v) HWY_ATTR { return add(set16(onto), round16(from + v * kLanes)); });
  };
  if (problem.want_dgamma) write(problem.dgamma, job.at.dgamma, totals);
  if (problem.want_dbeta) write(problem.dbeta, job.at.dbeta, totals + stride);
}

// The same from chains that are all there is.
template <class T>
HWY_NOINLINE void write_chains(const Job& job, int64_t begin, int64_t end, const float* chain) {
  const Problem& problem = job.problem;
  const auto write = [&](const View& view, void* base, const float* from) HWY_ATTR {
    write_sums<T>(view, base, begin, end,
                  [&](size_t v) HWY_ATTR { return add(zero16(), load16(from + 2 * v * kLanes)); });
  };
  if (problem.want_dgamma) write(problem.dgamma, job.at.dgamma, chain);
  if (problem.want_dbeta) write(problem.dbeta, job.at.dbeta, chain + kLanes);
}

// Adds `count` numbers, a multiple of kLanes, to others.
HWY_INLINE void add_numbers(double* to, const double* from, int64_t count) {
  const TagF64 d64;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(kWideLanes)) {
    hn::StoreU(hn::Add(hn::LoadU(d64, to + i), hn::LoadU(d64, from + i)), d64, to + i);
  }
}

// A slab's totals, dgamma and dbeta, to the sum of those before it. What nobody wrote behind the
// last strip is added, too, and never read.
HWY_NOINLINE void add_totals(const Job& job, double* sum, const double* totals) {
  add_numbers(sum, totals, 2 * job.padded_cols);
}

// dgamma and dbeta of columns [begin, end) from all slabs, of which there may be none, in their
// order.
template <class T>
void finish_columns(const Job& job, const SlabTotals& slabs, int64_t begin, int64_t end) {
  if (slabs.sum() != nullptr && slabs.joined() == job.plan.slabs) {
    return write_column_sums<T>(job, begin, end, slabs.sum() + begin, job.padded_cols);
  }
  alignas(64) double sums[2 * kFinishColumns] = {};
  const int64_t count = round_up(end - begin, static_cast<int64_t>(kStrip<T>));
  const auto add = [&](const double* totals) HWY_ATTR {
    add_numbers(sums, totals + begin, count);
    add_numbers(sums + kFinishColumns, totals + job.padded_cols + begin, count);
  };
  if (slabs.sum() != nullptr) add(slabs.sum());
  for (int64_t slab = slabs.joined(); slab < job.plan.slabs; ++slab) add(slabs.totals(slab));
  write_column_sums<T>(job, begin, end, sums, kFinishColumns);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
