// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmax on the CPU: one parallel pass over blocks of rows. A row is read from memory
// and from its mask once, into a buffer in L1, which then goes through exp() and division; the next
// row is prefetched meanwhile. An output that does not fit the cache is written past it in whole
// lines; where rows do not begin and end with lines, they are gathered in a Stage first.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/checked.h"
#include "base/half.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "ops/scaled_masked_softmax/exponents.h"
#include "ops/scaled_masked_softmax/problem.h"
#include "ops/scaled_masked_softmax/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/scaled_masked_softmax/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/scaled_masked_softmax/masked-inl.h"

#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_CPU_SHARED_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_CPU_SHARED_
namespace aclgrad::scaled_masked_softmax {
namespace {

// One run as the kernels see it.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  size_t cols;
  size_t padded;       // to whole pairs
  double factor;       // abs(scale) / log(2)
  float sign;          // of the scale
  bool usual;          // the factor leaves room for FP32 corrections
  bool streaming;      // y does not fit the cache
  bool lines_in_rows;  // all rows of y begin and end with lines
};

// Where a row lies, as offsets in elements.
struct Offsets {
  int64_t x = 0, mask = 0, y = 0;

  void add(const Offsets& step, int64_t count) {
    x += step.x * count;
    mask += step.mask * count;
    y += step.y * count;
  }
  bool operator==(const Offsets&) const = default;
};
using Walk = AttentionWalk<Offsets>;

AttentionBlock<Offsets> block_at(const Job& job, int64_t index) {
  const Problem& problem = job.problem;
  const auto step = [&](size_t dim) {
    return Offsets{problem.x.strides[dim], problem.mask.strides[dim], problem.y.strides[dim]};
  };
  return attention_block<Offsets>(job.plan, {problem.batches, problem.heads, problem.rows},
                                  {step(0), step(1), step(2)}, index);
}

// A row's first elements.
template <class T>
struct Row {
  const T* x;
  const uint8_t* mask;
  T* y;
};

template <class T>
Row<T> row_at(const Job& job, const Offsets& here) {
  return {static_cast<const T*>(job.at.x) + here.x,
          static_cast<const uint8_t*>(job.at.mask) + here.mask, static_cast<T*>(job.at.y) + here.y};
}

// What the elements of a row are multiplied by after exp(): 1 / sum, in two parts.
struct Quotient {
  float high, low;
};
Quotient one_over(double sum) {
  const double exact = 1.0 / sum;
  const auto high = static_cast<float>(exact);
  return {high, static_cast<float>(exact - static_cast<double>(high))};
}

}  // namespace
}  // namespace aclgrad::scaled_masked_softmax
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

constexpr size_t kMostCols = static_cast<size_t>(kMaxCols);

// The first visit to a row of at least thirty-two elements: sign * x, or -Inf where masked, to the
// buffer in pairs (see tree.h). Returns the largest in all lanes; where there are NaNs it may be
// anything.
template <class T>
HWY_INLINE VecF32 load_row(const Job& job, const Row<T>& row, float* values) {
  const F32x16 sign = set16(job.sign);
  const auto take = [&](size_t c) HWY_ATTR {
    Pair pair = load_pair(row.x + c);
    pair.first = mul(pair.first, sign);
    pair.second = mul(pair.second, sign);
    return unless(pair, row.mask + c, row.x);
  };
  F32x16 first = set16(-std::numeric_limits<float>::infinity());
  F32x16 second = first;
  const auto keep = [&](const Pair& pair, float* to) HWY_ATTR {
    first = max16(first, pair.first);
    second = max16(second, pair.second);
    store_raw(pair.first, to);
    store_raw(pair.second, to + kLanes);
  };
  size_t c = 0;
  for (; c + kPair <= job.cols; c += kPair) keep(take(c), values + c);
  if (c < job.cols) {
    keep(without_first(take(job.cols - kPair), c + kPair - job.cols, row.x), values + c);
  }
  return max_of_lanes(max16(first, second));
}

HWY_INLINE bool is_usual(const Job& job, VecF32 largest) {
  const float exponent = hn::GetLane(largest) * static_cast<float>(job.factor);
  return job.usual && exponent > kLowestUsual && exponent < kHighestUsual;
}
HWY_INLINE ExpTerms terms_of(const Job& job, VecF32 largest) {
  F32x16 highest;
  for (size_t i = 0; i < kParts; ++i) highest.part[i] = largest;
  return exp_terms(job.factor, highest);
}

// The second visit: exp() of what is in the buffer, and its sum.
template <class T>
double exp_row(const Job& job, VecF32 largest, const T* ahead, float* values) {
  const ExpTerms terms = terms_of(job, largest);
  double sums[1];
  row_sums<1>(job.padded, sums, [&](size_t i, size_t, F32x16(&acc)[1]) HWY_ATTR {
    hwy::Prefetch(ahead + i * kLanes);
    const F32x16 value = exp_below(load16(values + i * kLanes), terms);
    store_raw(value, values + i * kLanes);
    acc[0] = add(acc[0], value);
  });
  return sums[0];
}

// Which element stands in lane `lane` of vector i of the buffer; cols if none does.
template <class T>
size_t element_at(size_t cols, size_t i, size_t lane) {
  const bool in_pairs = cols >= kPair;
  const size_t whole = in_pairs ? cols / kPair * kPair : 0;
  const size_t begin = i / 2 * kPair;
  const bool is_last = in_pairs && begin == whole;
  const bool interleaved = in_pairs && std::is_same_v<T, bfloat16_t>;
  const size_t inside = interleaved ? 2 * lane + i % 2 : i % 2 * kLanes + lane;
  const size_t c = is_last ? cols - kPair + inside : begin + inside;
  return c < cols && (!is_last || c >= whole) ? c : cols;
}

// Both visits to a row whose numbers FP32 cannot tell apart, or that has NaNs, or nothing to go by.
// Rows of less than a pair stand in order.
template <class T>
double unusual_row(const Job& job, const Row<T>& row, float* values) {
  if (std::memchr(row.mask, 0, job.cols) == nullptr) {
    std::fill_n(values, job.padded, kExpGain);
    return static_cast<double>(job.cols) * static_cast<double>(kExpGain);
  }
  const Exponents exponents(row.x, row.mask, job.cols, job.problem.scale);
  if (exponents.has_nan()) return std::numeric_limits<double>::quiet_NaN();
  const double masked = exponents.of_masked();
  alignas(64) double wide[kLanes];
  double sums[1];
  row_sums<1>(job.padded, sums, [&](size_t i, size_t, F32x16(&acc)[1]) HWY_ATTR {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const size_t c = element_at<T>(job.cols, i, lane);
      if (c == job.cols) {
        wide[lane] = -std::numeric_limits<double>::infinity();
      } else if (row.mask[c] != 0) {
        wide[lane] = masked;
      } else {
        wide[lane] = exponents.of(static_cast<double>(to_float(row.x[c])));
      }
    }
    const F32x16 value = exp2_below(wide);
    store_raw(value, values + i * kLanes);
    acc[0] = add(acc[0], value);
  });
  return sums[0];
}

// What is left of a row before it is divided. In a row with a NaN all are.
template <class T>
HWY_INLINE Quotient finish_row(const Job& job, const Row<T>& row, VecF32 largest, const T* ahead,
                               float* values) {
  const double sum = HWY_LIKELY(is_usual(job, largest)) ? exp_row(job, largest, ahead, values)
                                                        : unusual_row(job, row, values);
  if (HWY_LIKELY(!std::isnan(sum))) return one_over(sum);
  std::fill_n(values, job.padded, to_float(float16_t{kCanonicalNanF16}));
  return {1.0f, 0.0f};
}

// Elements of y. FP32 is divided as if exactly; the other types round it away.
template <class T>
HWY_INLINE F32x16 divided(const F32x16& v, const Quotient& by, const T*) {
  if constexpr (std::is_same_v<T, float>) {
    return fma(v, set16(by.high), mul(v, set16(by.low)));
  } else {
    return mul(v, set16(by.high));
  }
}
template <class T>
HWY_INLINE void write_pair(const float* values, const Quotient& by, T* to, bool streaming) {
  Pair out;
  out.first = divided(load16(values), by, to);
  out.second = divided(load16(values + kLanes), by, to);
  store_clean_pair(out, to, streaming);
}

// The third visit to `count` >= 32 elements of the buffer. The last pair may overlap the one before
// it, with nothing in what it overlaps, so it is written first.
template <class T>
HWY_INLINE void write_pairs(const float* values, size_t count, const Quotient& by, T* to,
                            bool streaming) {
  const size_t whole = count / kPair * kPair;
  if (whole < count) write_pair(values + whole, by, to + count - kPair, false);
  for (size_t c = 0; c < whole; c += kPair) write_pair(values + c, by, to + c, streaming);
}

template <class T>
HWY_INLINE void write_row(const Job& job, const float* values, const Quotient& by, T* y,
                          Stage<T>* stage) {
  if (stage == nullptr) {
    write_pairs(values, job.cols, by, y, job.streaming);
    return;
  }
  // In pieces that the stage has room for, of about the same size.
  const size_t pieces = (job.cols + Stage<T>::kMost - kPair - 1) / (Stage<T>::kMost - kPair);
  const size_t piece = (job.padded / kPair + pieces - 1) / pieces * kPair;
  for (size_t c = 0; c < job.cols; c += piece) {
    const size_t count = HWY_MIN(piece, job.cols - c);
    write_pairs(values + c, count, by, stage->room(y + c, count), false);
  }
}

// A block of rows of at least thirty-two elements. While the end of a row's sum is waited for, the
// next row is read.
template <class T>
void long_rows(const Job& job, Walk& walk, Stage<T>* stage) {
  alignas(64) float values[2][kMostCols];
  Row<T> row = row_at<T>(job, walk.here());
  VecF32 largest = load_row(job, row, values[0]);
  walk.advance();
  const int64_t count = walk.rows();
  for (int64_t r = 0; r < count; ++r) {
    float* here = values[r % 2];
    const Row<T> next = row_at<T>(job, walk.here());
    walk.advance();
    const Quotient by = finish_row(job, row, largest, row_at<T>(job, walk.here()).x, here);
    if (r + 1 < count) largest = load_row(job, next, values[(r + 1) % 2]);
    write_row(job, here, by, row.y, stage);
    row = next;
  }
}

// A row of less than thirty-two elements, which stays in registers: V = 1 vector, or V = 2, the
// second of which ends with the row. kWhole: sixteen elements may be read, always so when V = 2.
template <class T, size_t V, bool kWhole>
HWY_INLINE void small_row(const Job& job, const Row<T>& row, Stage<T>& stage) {
  const size_t cols = job.cols;
  const size_t last = V == 1 ? 0 : cols - kLanes;
  const F32x16 sign = set16(job.sign);
  alignas(16) uint8_t mask_bytes[kLanes] = {};
  const uint8_t* mask = row.mask;
  if constexpr (!kWhole) {
    std::memcpy(mask_bytes, row.mask, cols);
    mask = mask_bytes;
  }
  F32x16 v[V];
  v[0] = unless(mul(kWhole ? load16(row.x) : load_first(row.x, cols), sign), mask);
  if constexpr (V == 1) {
    v[0] = only(v[0], 0, cols);
  } else {
    v[1] = only(unless(mul(load16(row.x + last), sign), mask + last), 2 * kLanes - cols, kLanes);
  }
  const VecF32 largest = max_of_lanes(V == 1 ? v[0] : max16(v[0], v[V - 1]));
  double sum;
  if (HWY_LIKELY(is_usual(job, largest))) {
    const ExpTerms terms = terms_of(job, largest);
    for (size_t i = 0; i < V; ++i) v[i] = exp_below(v[i], terms);
    sum = join16(V == 1 ? v[0] : add(v[0], v[V - 1]));
  } else {
    alignas(64) float values[kPair];
    sum = unusual_row(job, row, values);
    v[0] = load16(values);
    if constexpr (V == 2) v[1] = load16(values + last);
  }
  const Quotient by = one_over(sum);
  T* to = stage.room(row.y, cols);
  for (size_t i = V; i-- > 0;) store16(divided(v[i], by, to), to + (i == 0 ? 0 : last));
}

template <class T>
void small_rows(const Job& job, Walk& walk, Stage<T>& stage) {
  // Where rows follow each other without a gap, sixteen elements may be read while they lie in the
  // head; behind it anything may lie.
  const auto cols = static_cast<int64_t>(job.cols);
  const bool dense = job.problem.x.strides[2] == cols && job.problem.mask.strides[2] == cols;
  const int64_t reach = ceil_div(static_cast<int64_t>(kLanes), cols);  // rows in sixteen elements
  for (int64_t left = walk.rows(); left > 0; --left) {
    const Row<T> row = row_at<T>(job, walk.here());
    if (job.cols > kLanes) {
      small_row<T, 2, true>(job, row, stage);
    } else if (dense && walk.rows_of_head() >= reach) {
      small_row<T, 1, true>(job, row, stage);
    } else {
      small_row<T, 1, false>(job, row, stage);
    }
    walk.advance();
  }
}

template <class T>
void block(const Job& job, int64_t index) {
  Stage<T> stage(job.streaming);
  Walk walk(block_at(job, index));
  if (job.cols < kPair) {
    small_rows(job, walk, stage);
  } else {
    long_rows(job, walk, job.streaming && !job.lines_in_rows ? &stage : nullptr);
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
}  // namespace aclgrad::scaled_masked_softmax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::scaled_masked_softmax {
namespace {

HWY_EXPORT(run_f32);
HWY_EXPORT(run_f16);
HWY_EXPORT(run_bf16);

}  // namespace

void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at) {
  const auto size = static_cast<int64_t>(dtype_size(problem.y.dtype));
  const auto address = reinterpret_cast<uintptr_t>(at.y);
  constexpr auto kPairElements = static_cast<int64_t>(2 * kLanes);
  constexpr auto kLine = static_cast<int64_t>(kLineBytes);
  bool lines = address % kLineBytes == 0 && problem.cols % kPairElements == 0;
  for (size_t i = 0; i < 3; ++i) lines = lines && problem.y.strides[i] * size % kLine == 0;
  const double factor = std::abs(problem.scale) * kLog2OfE;
  // A client's memory may be aligned to less than an element; such lines cannot be streamed.
  const bool aligned = address % static_cast<uintptr_t>(size) == 0;
  const Job job{problem,
                plan,
                at,
                static_cast<size_t>(problem.cols),
                static_cast<size_t>(round_up(problem.cols, kPairElements)),
                factor,
                std::signbit(problem.scale) ? -1.0f : 1.0f,
                factor >= kSmallestFactor && factor <= kLargestFactor,
                aligned && outputs_should_stream(problem.y.numel() * size),
                lines};
  switch (problem.y.dtype) {
    case ACL_FLOAT16:
      return HWY_DYNAMIC_DISPATCH(run_f16)(job);
    case ACL_BF16:
      return HWY_DYNAMIC_DISPATCH(run_bf16)(job);
    default:
      return HWY_DYNAMIC_DISPATCH(run_f32)(job);
  }
}

}  // namespace aclgrad::scaled_masked_softmax
#endif  // HWY_ONCE
