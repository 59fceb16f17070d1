// SPDX-License-Identifier: Apache-2.0
// What the kernels of NsaCompressGrad see, and where a visit lies: a group of sixteen tokens, one
// head and a segment of columns, which a team of sixteen threads takes. Thread k of a team has the
// columns of the CPU's lane k.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_GRAD_TASK_CUH_
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_TASK_CUH_

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/nsa_compress_grad/plan.h"
#include "ops/nsa_compress_grad/problem.h"
#include "ops/nsa_compress_grad/tree.h"

namespace aclgrad::nsa_compress_grad::gpu {

using cuda::thread_count;
using cuda::thread_index;

// One run as the kernels see it.
struct Task {
  const void *x, *dy, *w;
  void *dx, *dw;
  float* weights;    // [heads][window], where a block does not keep them itself
  double* partials;  // [slabs][heads][window]
  int64_t heads, width, window, step;
  int64_t x_token, x_head, dy_window, dy_head, dx_token, dx_head;
  int64_t w_token, w_head, dw_token, dw_head;
  int64_t groups, slabs, slab_groups, gap_tokens;
  int64_t sequence_count, gap_count;
  const Sequence* many_sequences;  // null: they are few
  const Gap* many_gaps;
  CudaPlan plan;
  Sequence few_sequences[kFew];
  Gap few_gaps[kFew];

  __device__ const Sequence* sequences() const {
    return many_sequences != nullptr ? many_sequences : few_sequences;
  }
  __device__ const Gap* gaps() const { return many_gaps != nullptr ? many_gaps : few_gaps; }
};

// Division of numbers that hardly ever need 64 bits, where it takes four times as long.
__device__ inline int64_t divide(int64_t a, int64_t b) {
  if ((static_cast<uint64_t>(a) | static_cast<uint64_t>(b)) >> 32 == 0) {
    return static_cast<int64_t>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b));
  }
  return a / b;
}

// As Group (groups.h), with a segment of columns.
struct Visit {
  int64_t token;
  int64_t latest;  // window
  int64_t first;   // token of window `latest - begin` at which the group begins
  int begin, end;  // windows `latest - a`
  int inside;      // sixteens of tokens since the last window's begin
  int64_t column;
  int columns;
};

__device__ inline Visit place_visit(const Task& task, int64_t number) {
  const int64_t index = divide(number, task.plan.segments);
  const Sequence* const sequences = task.sequences();
  int64_t found = 0;
  for (int64_t end = task.sequence_count; end - found > 1;) {
    const int64_t middle = found + (end - found) / 2;
    (sequences[middle].first_group <= index ? found : end) = middle;
  }
  const Sequence sequence = sequences[found];
  const int64_t group = index - sequence.first_group;
  const int64_t steps = task.step / kGroup;
  const int64_t latest = divide(group, steps);
  const int64_t inside = group - latest * steps;
  const int64_t covering = divide(task.window / kGroup - inside + steps - 1, steps);
  const int64_t begin = latest - sequence.windows + 1;
  Visit visit;
  visit.token = sequence.token + group * kGroup;
  visit.latest = sequence.first_window + latest;
  visit.begin = static_cast<int>(begin > 0 ? begin : 0);
  visit.end = static_cast<int>(latest + 1 < covering ? latest + 1 : covering);
  visit.inside = static_cast<int>(inside);
  visit.first = (visit.begin * steps + inside) * kGroup;
  visit.column = (number - index * task.plan.segments) * kSegment;
  const int64_t left = task.width - visit.column;
  visit.columns = static_cast<int>(left < kSegment ? left : kSegment);
  return visit;
}

// Visits [begin, end) of a slab.
struct Visits {
  int64_t begin, end;
};
__device__ inline Visits visits_of(const Task& task, int64_t slab) {
  const int64_t first = slab * task.slab_groups;
  const int64_t behind = first + task.slab_groups;
  return {first * task.plan.segments,
          (behind < task.groups ? behind : task.groups) * task.plan.segments};
}

// The weights of a head in FP32, those of the block if it has room.
template <class T>
__device__ const float* weights_of(const Task& task, int64_t head, float* shared) {
  if (!task.plan.shared_weights) return task.weights + head * task.window;
  const T* const from = static_cast<const T*>(task.w) + head * task.w_head;
  for (int64_t j = thread_index(); j < task.window; j += thread_count()) {
    shared[j] = cuda::widen(from[j * task.w_token]);
  }
  __syncthreads();
  return shared;
}

}  // namespace aclgrad::nsa_compress_grad::gpu

#endif  // ACLGRAD_OPS_NSA_COMPRESS_GRAD_TASK_CUH_
