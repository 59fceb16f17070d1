// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmax on the CPU: one parallel pass over blocks of rows. A row is read from memory
// and from its mask once, into a buffer in L1, which then goes through exp() and division; the next
// row is prefetched meanwhile. An output that does not fit the cache is written past it in whole
// lines; where rows do not begin and end with lines, they are gathered in a Stage first. Rows of
// up to 160 elements are taken many at a time (short-inl.h, medium-inl.h).
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
#include "ops/scaled_masked_softmax/problem.h"
#include "ops/scaled_masked_softmax/rows.h"
#include "ops/scaled_masked_softmax/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/scaled_masked_softmax/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/scaled_masked_softmax/medium-inl.h"
#include "ops/scaled_masked_softmax/short-inl.h"
#include "ops/scaled_masked_softmax/visits-inl.h"

#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_CPU_SHARED_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_CPU_SHARED_
namespace aclgrad::scaled_masked_softmax {
namespace {

AttentionBlock<Offsets> block_at(const Job& job, int64_t index) {
  const Problem& problem = job.problem;
  const auto step = [&](size_t dim) {
    return Offsets{problem.x.strides[dim], problem.mask.strides[dim], problem.y.strides[dim]};
  };
  return attention_block<Offsets>(job.plan, {problem.batches, problem.heads, problem.rows},
                                  {step(0), step(1), step(2)}, index);
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
  VecF32 largest = max_of_lanes(load_row(job, row, values[0]));
  walk.advance();
  const int64_t count = walk.rows();
  for (int64_t r = 0; r < count; ++r) {
    float* here = values[r % 2];
    const Row<T> next = row_at<T>(job, walk.here());
    walk.advance();
    const Quotient by = finish_row(job, row, largest, row_at<T>(job, walk.here()).x, here);
    if (r + 1 < count) largest = max_of_lanes(load_row(job, next, values[(r + 1) % 2]));
    write_row(job, here, by, row.y, stage);
    row = next;
  }
}

template <class T>
void block(const Job& job, int64_t index) {
  const AttentionBlock<Offsets> here = block_at(job, index);
  Stage<T> stage(job.streaming);
  if (job.cols < kPair) {
    short_rows(job, here, row_at<T>(job, here.first), stage);
  } else {
    Walk walk(here);
    Stage<T>* const staged = job.streaming && !job.lines_in_rows ? &stage : nullptr;
    job.cols <= kMediumCols ? medium_rows(job, walk, staged) : long_rows(job, walk, staged);
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
