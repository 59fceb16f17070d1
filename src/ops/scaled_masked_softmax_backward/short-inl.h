// SPDX-License-Identifier: Apache-2.0
// Rows of at most fifteen elements, many at a time: products and dx are taken in whole vectors,
// whatever rows their elements belong to; sixteen rows are summed at once.

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_SHORT_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_SHORT_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_SHORT_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/dense_rows.h"
#include "kernels/cpu/row_joins-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "ops/scaled_masked_softmax_backward/exact-inl.h"
#include "ops/scaled_masked_softmax_backward/visits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Rows of at most so many elements are taken many at a time: those that would leave lanes empty.
constexpr size_t kShortCols = kLanes - 1;

// Elements of one portion: their numbers in FP32, 2 KiB, share L1 with what they come from and with
// the next portion, which is prefetched. 1024 took 1.2x the time (FP32 rows of 8, Zen 4).
constexpr size_t kPortionElements = 512;

// What lies in L1 meanwhile.
template <class T>
struct ShortBuffers {
  alignas(64) float products[kPortionElements + kLanes];
  alignas(64) float sums[kPortionElements + kLanes];
  alignas(64) T dy[kPortionElements];
  alignas(64) T y[kPortionElements];
  alignas(64) T dx[kPortionElements];
  alignas(64) T exact[kPortionElements];  // rows in FP64 wait here: dx may be dy or y
  alignas(64) uint8_t mask[kPortionElements];
};

// Some of a block's rows, one behind the other, filled up to whole sixteens of rows.
template <class T>
struct Portion {
  Row<T> row;  // the first one
  size_t rows, cols;
  size_t groups() const { return (rows + kLanes - 1) / kLanes; }
  size_t elements() const { return rows * cols; }
};

template <class T>
HWY_INLINE void write_products(const Portion<T>& portion, float on_dy, float* products) {
  const F32x16 factor = set16(on_dy);
  for (size_t i = 0; i < portion.groups() * kLanes * portion.cols; i += kLanes) {
    hwy::Prefetch(portion.row.dy + i + portion.row.dy_ahead);
    const F32x16 dy = mul(load16(portion.row.dy + i), factor);
    store_raw(mul(dy, load16(portion.row.y + i)), products + i);
  }
}

// No row is to be judged by itself. All sums are finite then.
HWY_INLINE bool all_ordinary(const Job& job, const float* sums, size_t rows) {
  const TagU32 du;
  const VecU32 magnitude = hn::Set(du, 0x7FFFFFFFu);
  const VecU32 least = hn::Set(du, std::bit_cast<uint32_t>(kLeastSum));
  const VecU32 count = hn::Set(du, job.ordinary_sums);
  const size_t whole = rows / kPartLanes * kPartLanes;
  auto all = hn::Eq(count, count);
  for (size_t r = 0; r < whole; r += kPartLanes) {
    const VecU32 bits = hn::And(hn::BitCast(du, hn::LoadU(TagF32(), sums + r)), magnitude);
    all = hn::And(all, hn::Lt(hn::Sub(bits, least), count));
  }
  bool rest = true;
  for (size_t r = whole; r < rows; ++r) rest = rest && is_ordinary(job, sums[r]);
  return rest && hn::AllTrue(du, all);
}

// kClean: all sums are ordinary and the job is clean. `streaming`: past the caches, `to` begins a
// line and ends one.
template <bool kClean, class T>
HWY_INLINE void write_portion(const Job& job, const Portion<T>& portion, const float* sums,
                              const RowSpread& spread, bool streaming, T* to) {
  const Row<T>& row = portion.row;
  const F32x16 on_dy = set16(job.factors.on_dy);
  const F32x16 on_dx = set16(job.factors.on_dx);
  const size_t count = portion.elements();
  for (size_t at = 0; at < count; sums += kLanes) {
    for (size_t v = 0; v < portion.cols && at < count; ++v, at += kLanes) {
      hwy::Prefetch(row.y + at + row.y_ahead);
      hwy::Prefetch(row.mask + at + row.y_ahead);
      const F32x16 y = load16(row.y + at);
      const F32x16 dy = load16(row.dy + at);
      const F32x16 scaled = kClean ? dy : mul(dy, on_dy);
      const F32x16 dx = mul(fms(scaled, y, mul(y, spread(sums, v))), on_dx);
      if constexpr (kClean) {
        store_clean16(masked(dx, row.mask + at), to + at, streaming);
      } else {
        store16(masked(dx, row.mask + at), to + at);
      }
    }
  }
}

// The same for a portion with sums that are not ordinary: rows in FP64 are computed before anything
// is written.
template <class T>
HWY_NOINLINE void write_unusual(const Job& job, const Portion<T>& portion, const float* sums,
                                const RowSpread& spread, T* exact, T* to) {
  const auto cols = static_cast<int64_t>(portion.cols);
  const Offsets step{cols, cols, cols, cols};
  bool is_exact_row[kPortionElements];
  for (size_t r = 0; r < portion.rows; ++r) {
    const Row<T> row = portion.row.moved(step, static_cast<int64_t>(r));
    is_exact_row[r] = !is_ordinary(job, sums[r]) && is_exact(job, row, sums[r]);
    if (is_exact_row[r]) write_exact(job, row, exact + r * portion.cols);
  }
  write_portion<false>(job, portion, sums, spread, false, to);
  for (size_t r = 0; r < portion.rows; ++r) {
    if (!is_exact_row[r]) continue;
    std::memcpy(static_cast<void*>(to + r * portion.cols), exact + r * portion.cols,
                portion.cols * sizeof(T));
  }
}

// A block of rows of at most fifteen elements.
template <class T>
void short_rows(const Job& job, const AttentionBlock<Offsets>& block, const Row<T>& first) {
  const DenseRows dy(first.dy, block, &Offsets::dy, job.cols);
  const DenseRows y(first.y, block, &Offsets::y, job.cols);
  const DenseRows mask(first.mask, block, &Offsets::mask, job.cols);
  const DenseRows dx(first.dx, block, &Offsets::dx, job.cols);
  const RowSpread spread(job.cols);
  ShortBuffers<T> buffers;
  Stage<T> stage(job.streaming);
  const auto most = static_cast<int64_t>(rows_of_portion(kPortionElements, job.cols));
  for (int64_t r = 0; r < dx.rows(); r += most) {
    const int64_t count = std::min(most, dx.rows() - r);
    Portion<T> portion{{}, static_cast<size_t>(count), job.cols};
    portion.row.dy_ahead = portion.row.y_ahead = count * static_cast<int64_t>(job.cols);
    portion.row.dy = dy.read(r, count, buffers.dy);
    portion.row.y = y.read(r, count, buffers.y);
    portion.row.mask = mask.read(r, count, buffers.mask);
    write_products(portion, job.factors.on_dy, buffers.products);
    const float* sums = buffers.products;
    if (job.cols > 1) {
      join_columns(buffers.products, {job.cols, 0, job.cols}, portion.groups(), buffers.sums,
                   Sum());
      sums = buffers.sums;
    }
    const bool ordinary = all_ordinary(job, sums, portion.rows);
    const bool dense = dx.is_dense();
    const bool lines = dense && job.streaming && ordinary && job.clean && begins_line(dx.at(r)) &&
                       portion.elements() * sizeof(T) % kLineBytes == 0;
    const bool staged = dense && job.streaming && !lines;
    const bool direct = dense && portion.elements() % kLanes == 0;
    T* to = buffers.dx;
    if (staged) {
      to = stage.room(dx.at(r), portion.elements());
    } else if (direct) {
      to = dx.at(r);
    }
    if (HWY_UNLIKELY(!ordinary)) {
      write_unusual(job, portion, sums, spread, buffers.exact, to);
    } else if (job.clean) {
      write_portion<true>(job, portion, sums, spread, lines, to);
    } else {
      write_portion<false>(job, portion, sums, spread, false, to);
    }
    if (!staged && !direct) dx.write(r, count, buffers.dx);
  }
  stage.flush();
  if (job.streaming) hwy::FlushStream();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
