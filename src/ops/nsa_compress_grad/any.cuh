// SPDX-License-Identifier: Apache-2.0
// NsaCompressGrad on a GPU for every shape: columns one by one, windows one after the other. A team
// takes the same of the sixteen tokens of all groups of a slab, in order, so it adds their sums to
// dw's totals itself.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_GRAD_ANY_CUH_
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_ANY_CUH_

#include <cstdint>
#include <type_traits>

#include "ops/nsa_compress_grad/task.cuh"

namespace aclgrad::nsa_compress_grad::gpu {

// Columns of a segment that a thread has.
inline constexpr int kOwnColumns = static_cast<int>(kChain);

// Where column `number` of thread `lane` stands among `columns`: pairs of vectors as load_pair() of
// kernels/cpu/pairs-inl.h has them, and a vector that is left over.
template <class T>
__device__ int column_of(int lane, int number, int columns) {
  constexpr auto kBoth = static_cast<int>(kPairColumns);
  const int pair = number / 2 * kBoth;
  if (pair + kBoth > columns) return pair + lane;
  if constexpr (std::is_same_v<T, bfloat16_t>) {
    return pair + 2 * lane + number % 2;
  } else {
    return pair + number % 2 * kTeam + lane;
  }
}

// One token of a visit. All teams of a warp call it together.
template <class T>
__device__ void visit_any_token(const Task& task, const Visit& visit, int64_t head, int token,
                                const float* weights, double* totals) {
  const int lane = thread_index() % kTeam;
  const int own = visit.columns / kTeam;
  const bool several = task.plan.most_windows > static_cast<int64_t>(kChain);
  const T* const x = static_cast<const T*>(task.x) + (visit.token + token) * task.x_token +
                     head * task.x_head + visit.column;
  T* const dx = static_cast<T*>(task.dx) + (visit.token + token) * task.dx_token +
                head * task.dx_head + visit.column;
  float values[kOwnColumns] = {};
  float sums[kOwnColumns] = {};
  double wide[kOwnColumns] = {};
#pragma unroll
  for (int c = 0; c < kOwnColumns; ++c) {
    if (c < own) values[c] = cuda::widen(x[column_of<T>(lane, c, visit.columns)]);
  }
#pragma unroll 1
  for (int a = visit.begin; a < visit.end; ++a) {
    const T* const dy = static_cast<const T*>(task.dy) + (visit.latest - a) * task.dy_window +
                        head * task.dy_head + visit.column;
    const int64_t j = a * task.step + visit.inside * kGroup + token;
    const float weight = weights[j];
    float chain = 0.0f;
#pragma unroll
    for (int c = 0; c < kOwnColumns; ++c) {
      if (c >= own) continue;
      const float grad = cuda::widen(dy[column_of<T>(lane, c, visit.columns)]);
      sums[c] = fmaf(weight, grad, sums[c]);
      chain = fmaf(grad, values[c], chain);
    }
    for (int half = kTeam / 2; half > 0; half /= 2) {
      chain += __shfl_xor_sync(cuda::kAllLanes, chain, half);
    }
    if (lane == 0) totals[j] += static_cast<double>(chain);
    const bool full = (a + 1) % static_cast<int>(kChain) == 0;
    if (!several || (!full && a + 1 != visit.end)) continue;
#pragma unroll
    for (int c = 0; c < kOwnColumns; ++c) {
      wide[c] += static_cast<double>(sums[c]);
      sums[c] = 0.0f;
    }
  }
#pragma unroll
  for (int c = 0; c < kOwnColumns; ++c) {
    if (c >= own) continue;
    dx[column_of<T>(lane, c, visit.columns)] =
        cuda::narrow<T>(several ? static_cast<float>(wide[c]) : sums[c]);
  }
}

template <class T>
__global__ void __launch_bounds__(static_cast<int>(kGroup) * kTeam)
    visit_any(const __grid_constant__ Task task) {
  __shared__ float shared[kCudaTuning.shared_window];
  for (int64_t block = cuda::block_index(); block < task.plan.visit_blocks;
       block += cuda::block_count()) {
    const int64_t slab = divide(block, task.heads);
    const int64_t head = block - slab * task.heads;
    const float* const weights = weights_of<T>(task, head, shared);
    double* const totals = task.partials + (slab * task.heads + head) * task.window;
    for (int64_t j = thread_index(); j < task.window; j += thread_count()) totals[j] = 0.0;
    __syncthreads();
    const Visits visits = visits_of(task, slab);
    for (int64_t number = visits.begin; number < visits.end; ++number) {
      const Visit visit = place_visit(task, number);
      for (int token = thread_index() / kTeam; token < kGroup; token += thread_count() / kTeam) {
        visit_any_token<T>(task, visit, head, token, weights, totals);
      }
    }
    __syncthreads();
  }
}

}  // namespace aclgrad::nsa_compress_grad::gpu

#endif  // ACLGRAD_OPS_NSA_COMPRESS_GRAD_ANY_CUH_
