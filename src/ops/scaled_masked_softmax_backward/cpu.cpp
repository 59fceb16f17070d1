// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmaxBackward on the CPU: one parallel pass over blocks of rows. A row is visited
// twice: row_sum() brings it from memory into L1, write_dx() finds it there. Rows of at most
// sixteen elements stay in registers instead. Rows that do not end where a whole vector does go
// through a Stage, so that the lines of dx are still written whole.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "ops/scaled_masked_softmax_backward/problem.h"
#include "ops/scaled_masked_softmax_backward/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/scaled_masked_softmax_backward/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/sums-inl.h"

#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_CPU_SHARED_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_CPU_SHARED_
namespace aclgrad::scaled_masked_softmax_backward {
namespace {

// Elements of a Stage (8 KB: it shares L1 with two rows) and of a row's part that goes there at
// once. No influence on the bits.
constexpr size_t kStage = 2048;
constexpr size_t kPiece = 1024;

// The scale as FP32: one factor goes to dy, the other to the result.
struct Factors {
  float on_dy;
  float on_dx;
};

// The scale with 2^power of it on dy.
Factors split_scale(double scale, int power) {
  return {std::ldexp(1.0f, power), static_cast<float>(std::ldexp(scale, -power))};
}
// The power that FP32 cannot hold, 0 for a usual scale.
int unusual_power(double scale) {
  if (scale == 0.0 || !std::isfinite(scale)) return 0;
  const int exponent = std::ilogb(scale);
  if (exponent < -126) return std::max(exponent + 126, -126);
  return exponent > 127 ? std::min(exponent - 127, 127) : 0;
}
// All of it when the scale is over 1 (see kLargestScaledSum).
int whole_power(double scale) {
  if (!std::isfinite(scale) || std::abs(scale) < 2.0) return unusual_power(scale);
  return std::min(std::ilogb(scale), 127);
}

// One run as the kernels see it.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  size_t cols;
  Factors split;
  Factors plain;   // for rows whose sum is too large for `split`
  bool two_ways;   // `split` is not `plain`
  bool streaming;  // dx does not fit the cache
};

// `count` steps over the rows, and what each adds to the offset in elements of each tensor.
struct Steps {
  int64_t count;
  int64_t dy, y, mask, dx;

  bool continues(const Steps& inner) const {
    return dy == inner.count * inner.dy && y == inner.count * inner.y &&
           mask == inner.count * inner.mask && dx == inner.count * inner.dx;
  }
};

// The rows of a block as nested loops, outermost first. Loops that step as one are joined, so that
// the innermost is a run of rows as long as the strides allow.
struct Nest {
  Steps loops[3] = {{1, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, {1, 0, 0, 0, 0}};

  void add_inner(const Steps& steps) {
    if (steps.count == 1) return;
    if (loops[2].continues(steps) && loops[2].count != 1) {
      const int64_t count = loops[2].count * steps.count;
      loops[2] = steps;
      loops[2].count = count;
      return;
    }
    loops[0] = loops[1];
    loops[1] = loops[2];
    loops[2] = steps;
  }
};

// Where rows lie: a row's first elements.
template <class T>
struct Row {
  const T* dy;
  const T* y;
  const uint8_t* mask;
  T* dx;

  Row moved(const Steps& steps, int64_t count) const {
    return {dy + count * steps.dy, y + count * steps.y, mask + count * steps.mask,
            dx + count * steps.dx};
  }
};

// The block's first row and its nest.
template <class T>
Row<T> locate(const Job& job, int64_t index, Nest& nest) {
  const Problem& problem = job.problem;
  const Plan& plan = job.plan;
  const auto part = [](int64_t block, int64_t size, int64_t all) {
    return std::min(size, all - block * size);
  };
  // Blocks of heads that share rows of the mask are neighbours.
  const int64_t head_block = index % plan.head_blocks;
  const int64_t row_block = index / plan.head_blocks % plan.row_blocks;
  const int64_t batch_block = index / plan.head_blocks / plan.row_blocks;
  const auto steps = [&](size_t dim, int64_t count) {
    return Steps{count, problem.dy.strides[dim], problem.y.strides[dim], problem.mask.strides[dim],
                 problem.dx.strides[dim]};
  };
  nest.add_inner(steps(0, part(batch_block, plan.batches, problem.batches)));
  nest.add_inner(steps(1, part(head_block, plan.heads, problem.heads)));
  nest.add_inner(steps(2, part(row_block, plan.rows, problem.rows)));
  const Row<T> first{static_cast<const T*>(job.at.dy), static_cast<const T*>(job.at.y),
                     static_cast<const uint8_t*>(job.at.mask), static_cast<T*>(job.at.dx)};
  return first.moved(steps(0, 0), batch_block * plan.batches)
      .moved(steps(1, 0), head_block * plan.heads)
      .moved(steps(2, 0), row_block * plan.rows);
}

}  // namespace
}  // namespace aclgrad::scaled_masked_softmax_backward
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// +0 where the mask's byte is not 0, whatever stands there.
HWY_INLINE F32x16 masked(const F32x16& v, const uint8_t* mask) {
  const TagU32 du;
  const hn::Rebind<uint8_t, TagF32> d8;
  return each_part([&](size_t i) HWY_ATTR {
    const VecU32 bytes = hn::PromoteTo(du, hn::LoadU(d8, mask + i * kPartLanes));
    const auto keep = hn::RebindMask(TagF32(), hn::Eq(bytes, hn::Zero(du)));
    return hn::IfThenElseZero(keep, v.part[i]);
  });
}

// The lanes below `count` from a, the others from b.
HWY_INLINE F32x16 first_from(size_t count, const F32x16& a, const F32x16& b) {
  return each_part([&](size_t i) HWY_ATTR {
    const size_t begin = i * kPartLanes;
    const size_t taken = count > begin ? count - begin : 0;
    return hn::IfThenElse(hn::FirstN(TagF32(), HWY_MIN(taken, kPartLanes)), a.part[i], b.part[i]);
  });
}

// The sum of a row of more than sixteen elements.
template <class T>
HWY_INLINE float row_sum(const Row<T>& row, size_t cols, float on_dy) {
  const F32x16 factor = set16(on_dy);
  double sums[1];
  row_sums<1>(cols, sums, [&](size_t i, size_t count, F32x16(&acc)[1]) HWY_ATTR {
    const size_t at = count == kLanes ? i * kLanes : cols - kLanes;
    const F32x16 sum = fma(mul(load16(row.dy + at), factor), load16(row.y + at), acc[0]);
    acc[0] = count == kLanes ? sum : first_from(kLanes - count, acc[0], sum);
  });
  return static_cast<float>(sums[0]);
}

// What the second visit needs: dx = on_dx * (dy * on_dy * y - y * sum).
struct Terms {
  F32x16 on_dy, on_dx, minus_sum;
};
HWY_INLINE Terms terms_of(const Factors& factors, float sum) {
  return {set16(factors.on_dy), set16(factors.on_dx), set16(-sum)};
}
HWY_INLINE F32x16 dx16(const F32x16& dy, const F32x16& y, const Terms& terms) {
  const F32x16 product = mul(y, terms.minus_sum);
  return mul(fma(mul(dy, terms.on_dy), y, product), terms.on_dx);
}
template <class T>
HWY_INLINE F32x16 dx16(const Row<T>& row, size_t at, const Terms& terms) {
  return masked(dx16(load16(row.dy + at), load16(row.y + at), terms), row.mask + at);
}

// Rows of dx that follow each other in memory, gathered in FP32 until whole lines can be written.
template <class T>
class Stage {
 public:
  explicit Stage(bool streaming) : streaming_(streaming) {}

  // Where the elements for [at, at + count) belong, count <= kStage / 2. The sixteen behind them
  // may be overwritten. They count as present at once.
  HWY_INLINE float* room(T* at, size_t count) {
    if (HWY_UNLIKELY(at != next_ + filled_)) {
      flush();
      next_ = at;
    }
    if (HWY_UNLIKELY(filled_ + count > kStage)) drain();
    float* out = values_ + filled_;
    filled_ += count;
    return out;
  }

  void flush() {
    drain();
    if (filled_ != 0) store_first(load16(values_), next_, filled_);
    next_ += filled_;
    filled_ = 0;
  }

 private:
  // Writes whole vectors and keeps what is left.
  void drain() {
    size_t at = 0;
    if (streaming_ && filled_ >= kLanes && !can_stream(next_)) {
      at = kLanes - reinterpret_cast<uintptr_t>(next_) / sizeof(T) % kLanes;
      store_first(load16(values_), next_, at);
    }
    for (; at + kLanes <= filled_; at += kLanes) {
      const F32x16 v = load16(values_ + at);
      if (streaming_) {
        stream16(v, next_ + at);
      } else {
        store16(v, next_ + at);
      }
    }
    store_raw(load16(values_ + at), values_);
    next_ += at;
    filled_ -= at;
  }

  alignas(64) float values_[kStage + 2 * kLanes];
  T* next_ = nullptr;
  size_t filled_ = 0;
  bool streaming_;
};

// A row of at most sixteen elements. kWhole: all sixteen lanes may be read.
template <class T, bool kWhole>
HWY_INLINE void short_row(const Job& job, const Row<T>& row, Stage<T>* stage) {
  const size_t cols = job.cols;
  alignas(16) uint8_t mask_bytes[kLanes] = {};
  const uint8_t* mask = row.mask;
  if constexpr (!kWhole) {
    std::memcpy(mask_bytes, row.mask, cols);
    mask = mask_bytes;
  }
  const F32x16 dy = kWhole ? load16(row.dy) : load_first(row.dy, cols);
  const F32x16 y = kWhole ? load16(row.y) : load_first(row.y, cols);
  const auto sum_with = [&](const Factors& factors) HWY_ATTR {
    const F32x16 products = fma(mul(dy, set16(factors.on_dy)), y, zero16());
    alignas(64) double totals[kLanes];
    set_to(totals, keep_first(products, cols));
    return static_cast<float>(join16(totals));
  };
  float sum = sum_with(job.split);
  Terms terms = terms_of(job.split, sum);
  if (HWY_UNLIKELY(job.two_ways && !(std::abs(sum) < kLargestScaledSum))) {
    sum = sum_with(job.plain);
    terms = terms_of(job.plain, sum);
  }
  const F32x16 dx = masked(dx16(dy, y, terms), mask);
  if (stage != nullptr) {
    store_raw(dx, stage->room(row.dx, cols));
  } else if (cols == kLanes) {
    store16(dx, row.dx);
  } else {
    store_first(dx, row.dx, cols);
  }
}

template <class T>
HWY_INLINE void short_run(const Job& job, const Row<T>& first, const Steps& steps,
                          Stage<T>* stage) {
  // Where rows follow each other without a gap, sixteen lanes may be read while they lie in the
  // run; other threads may be writing what lies behind it.
  const auto cols = static_cast<int64_t>(job.cols);
  const bool dense = steps.dy == cols && steps.y == cols && steps.mask == cols;
  int64_t whole = 0;
  if (dense)
    whole =
        std::max(steps.count - (static_cast<int64_t>(kLanes) + cols - 1) / cols + 1, int64_t{0});
  if (job.cols == kLanes) whole = steps.count;
  int64_t r = 0;
  for (; r < whole; ++r) short_row<T, true>(job, first.moved(steps, r), stage);
  for (; r < steps.count; ++r) short_row<T, false>(job, first.moved(steps, r), stage);
}

// The second visit to a row of more than sixteen elements. dx may be dy or y: the last vector
// overlaps the one before it, so it is computed before that one is written.
template <class T>
HWY_INLINE void write_dx(const Row<T>& row, size_t cols, const Terms& terms, bool streaming) {
  const size_t rest = cols % kLanes;
  const size_t full = cols - rest;
  const F32x16 last = dx16(row, cols - kLanes, terms);
  if (!streaming || !can_stream(row.dx)) {
    for (size_t at = 0; at < full; at += kLanes) store16(dx16(row, at, terms), row.dx + at);
    if (rest != 0) store16(last, row.dx + cols - kLanes);
    return;
  }
  for (size_t at = 0; at < full; at += kLanes) stream16(dx16(row, at, terms), row.dx + at);
  if (rest != 0) {  // without touching the lines that are on their way to memory
    T buffer[kLanes];
    store16(last, buffer);
    std::memcpy(static_cast<void*>(row.dx + full), buffer + kLanes - rest, rest * sizeof(T));
  }
}

// The same through the stage, in pieces; the last one is no shorter than a vector.
template <class T>
HWY_INLINE void stage_dx(const Row<T>& row, size_t cols, const Terms& terms, Stage<T>& stage) {
  for (size_t begin = 0; begin < cols;) {
    const size_t left = cols - begin;
    const size_t count = left <= kPiece + kLanes ? left : kPiece;
    const size_t full = count - count % kLanes;
    float* out = stage.room(row.dx + begin, count);
    for (size_t at = 0; at < full; at += kLanes) {
      store_raw(dx16(row, begin + at, terms), out + at);
    }
    if (full != count) {
      store_raw(dx16(row, cols - kLanes, terms), out + count - kLanes);
    }
    begin += count;
  }
}

template <class T>
HWY_INLINE void long_run(const Job& job, const Row<T>& first, const Steps& steps, Stage<T>* stage) {
  for (int64_t r = 0; r < steps.count; ++r) {
    const Row<T> row = first.moved(steps, r);
    float sum = row_sum(row, job.cols, job.split.on_dy);
    Terms terms = terms_of(job.split, sum);
    if (HWY_UNLIKELY(job.two_ways && !(std::abs(sum) < kLargestScaledSum))) {
      sum = row_sum(row, job.cols, job.plain.on_dy);
      terms = terms_of(job.plain, sum);
    }
    if (stage != nullptr) {
      stage_dx(row, job.cols, terms, *stage);
    } else {
      write_dx(row, job.cols, terms, job.streaming);
    }
  }
}

template <class T>
void block(const Job& job, int64_t index) {
  Nest nest;
  const Row<T> first = locate<T>(job, index, nest);
  const Steps& run = nest.loops[2];
  const bool is_short = job.cols <= kLanes;
  const bool dense = run.count == 1 || run.dx == static_cast<int64_t>(job.cols);
  const bool lines = job.cols % kLanes == 0 && (!job.streaming || can_stream(first.dx));
  const bool staged = dense && !lines && (is_short || job.streaming);
  Stage<T> stage(job.streaming);
  for (int64_t i = 0; i < nest.loops[0].count; ++i) {
    for (int64_t j = 0; j < nest.loops[1].count; ++j) {
      const Row<T> row = first.moved(nest.loops[0], i).moved(nest.loops[1], j);
      if (is_short) {
        short_run(job, row, run, staged ? &stage : nullptr);
      } else {
        long_run(job, row, run, staged ? &stage : nullptr);
      }
    }
  }
  stage.flush();
  if (job.streaming) hwy::FlushStream();
}

template <class T>
void run(const Job& job) {
  parallel_blocks(job.plan.blocks(), [&](int64_t index) { block<T>(job, index); });
}
void run_f32(const Job& job) { run<float>(job); }
void run_f16(const Job& job) { run<float16_t>(job); }
void run_bf16(const Job& job) { run<bfloat16_t>(job); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax_backward
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::scaled_masked_softmax_backward {
namespace {

HWY_EXPORT(run_f32);
HWY_EXPORT(run_f16);
HWY_EXPORT(run_bf16);

}  // namespace

void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at) {
  const auto size = static_cast<int64_t>(dtype_size(problem.dx.dtype));
  // A client's memory may be aligned to less than an element; such lines cannot be streamed.
  const bool aligned = reinterpret_cast<uintptr_t>(at.dx) % static_cast<uintptr_t>(size) == 0;
  const Factors split = split_scale(problem.scale, whole_power(problem.scale));
  const Factors plain = split_scale(problem.scale, unusual_power(problem.scale));
  const Job job{problem,
                plan,
                at,
                static_cast<size_t>(problem.cols),
                split,
                plain,
                split.on_dy != plain.on_dy,
                aligned && outputs_should_stream(problem.dx.numel() * size)};
  switch (problem.dx.dtype) {
    case ACL_FLOAT16:
      return HWY_DYNAMIC_DISPATCH(run_f16)(job);
    case ACL_BF16:
      return HWY_DYNAMIC_DISPATCH(run_bf16)(job);
    default:
      return HWY_DYNAMIC_DISPATCH(run_f32)(job);
  }
}

}  // namespace aclgrad::scaled_masked_softmax_backward
#endif  // HWY_ONCE
