// SPDX-License-Identifier: Apache-2.0
// NsaCompressGrad on a GPU for the usual shapes: aligned rows, few windows a token. A
// team keeps its columns of dy in registers for all sixteen tokens of a group; the chains of dw of
// some tokens are joined over the team at once, and wait in shared memory until the block's visits
// so far are added in order.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_GRAD_USUAL_CUH_
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_USUAL_CUH_

#include <cstdint>
#include <type_traits>

#include "ops/nsa_compress_grad/task.cuh"

namespace aclgrad::nsa_compress_grad::gpu {

// Two columns of a thread as they come from memory: neighbours in BF16, sixteen columns apart in
// FP16 (kernels/cpu/pairs-inl.h).
__device__ inline uint32_t load_columns(const bfloat16_t* row, int lane) {
  return *reinterpret_cast<const uint32_t*>(row + 2 * lane);
}
__device__ inline uint32_t load_columns(const float16_t* row, int lane) {
  return row[lane].bits | static_cast<uint32_t>(row[lane + kTeam].bits) << 16;
}
struct Two {
  float first, second;
};
__device__ inline Two widen_columns(uint32_t bits, bfloat16_t) {
  return {cuda::float_of(bits << 16), cuda::float_of(bits & 0xFFFF0000u)};
}
__device__ inline Two widen_columns(uint32_t bits, float16_t) {
  return {cuda::widen(float16_t{static_cast<uint16_t>(bits & 0xFFFFu)}),
          cuda::widen(float16_t{static_cast<uint16_t>(bits >> 16)})};
}
__device__ inline void store_columns(bfloat16_t* row, int lane, const Two& values) {
  const uint32_t first = cuda::narrow<bfloat16_t>(values.first).bits;
  const uint32_t second = cuda::narrow<bfloat16_t>(values.second).bits;
  *reinterpret_cast<uint32_t*>(row + 2 * lane) = first | second << 16;
}
__device__ inline void store_columns(float16_t* row, int lane, const Two& values) {
  row[lane] = cuda::narrow<float16_t>(values.first);
  row[lane + kTeam] = cuda::narrow<float16_t>(values.second);
}

// Sixteen chains of every thread of a team become the sum over its lanes of chain `lane`: lanes i
// and i + 8 are joined, then i + 4, i + 2, i + 1. (Recursive: a loop over halves is not unrolled,
// and the chains would leave the registers.)
template <int kHalf = kTeam / 2>
__device__ float join_chains(float (&chains)[kTeam], int lane) {
  const bool upper = (lane & kHalf) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float given = upper ? chains[i] : chains[i + kHalf];
    const float kept = upper ? chains[i + kHalf] : chains[i];
    chains[i] = kept + __shfl_xor_sync(cuda::kAllLanes, given, kHalf);
  }
  if constexpr (kHalf > 1) {
    return join_chains<kHalf / 2>(chains, lane);
  } else {
    return chains[0];
  }
}

struct UsualShared {
  float weights[kCudaTuning.shared_window];
  float values[kCudaTuning.value_floats];  // [visits][windows][kGroup]
  // Of each visit: the windows that it has sums of, and at which sixteen of theirs.
  int begin[kCudaTuning.value_floats / (2 * kGroup)];
  int end[kCudaTuning.value_floats / (2 * kGroup)];
  int inside[kCudaTuning.value_floats / (2 * kGroup)];
};

// One visit by one team; the other team of its warp makes another one at the same time.
template <class T, int kWindows, int kPairs, bool kHalf>
struct Visitor {
  static constexpr auto kTokens = static_cast<int>(kGroup);
  static constexpr VisitTuning kTuning = visit_tuning(kWindows, kPairs);
  static constexpr bool kWide = kTuning.wide;
  // Tokens whose chains are joined at once, and those whose columns of x are under way.
  static constexpr int kJoined = kTeam / kWindows;
  static constexpr int kLoaded =
      std::is_same_v<T, float16_t> ? kTuning.tokens_f16 : kTuning.tokens_bf16;
  static_assert(kJoined % kLoaded == 0);

  const Task& task;
  int lane;
  bool valid;  // there is a visit for this team
  int windows, pairs;
  int half;  // the pair of which there are only the first sixteen columns, or -1
  const T *x, *dy;
  T* dx;
  const float* weights;  // of the group's first token in the latest window

  uint32_t grads[kWide ? 1 : kWindows][kWide ? 1 : kPairs];
  Two wide_grads[kWide ? kWindows : 1][kWide ? kPairs : 1];

  // Without a second column that is zero, which adds nothing to a chain of dw.
  __device__ uint32_t load_pair(const T* row, int pair) const {
    const T* const at = row + pair * kPairColumns;
    if (kHalf && pair == half) return at[lane].bits;
    return load_columns(at, lane);
  }
  __device__ void store_pair(T* row, int pair, const Two& values) const {
    T* const at = row + pair * kPairColumns;
    if (kHalf && pair == half) {
      at[lane] = cuda::narrow<T>(values.first);
    } else {
      store_columns(at, lane, values);
    }
  }

  __device__ void load_dy() {
#pragma unroll
    for (int a = 0; a < kWindows; ++a) {
#pragma unroll
      for (int p = 0; p < kPairs; ++p) {
        uint32_t bits = 0;
        if (a < windows && p < pairs) {
          bits = load_pair(dy - a * task.dy_window, p);
        }
        if constexpr (kWide) {
          wide_grads[a][p] = widen_columns(bits, T());
        } else {
          grads[a][p] = bits;
        }
      }
    }
  }
  __device__ Two grad(int a, int p) const {
    if constexpr (kWide) {
      return wide_grads[a][p];
    } else {
      return widen_columns(grads[a][p], T());
    }
  }

  // One token: writes its row of dx and makes its chains of dw, [kWindows] every kJoined.
  template <bool kFull>
  __device__ void visit_token(int token, const uint32_t (&values)[kPairs], float* chains) {
    float weight[kWindows];
#pragma unroll
    for (int a = 0; a < kWindows; ++a) {
      weight[a] = kFull || a < windows ? weights[a * task.step + token] : 0.0f;
    }
    T* const out = dx + token * task.dx_token;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      if (p >= pairs) continue;
      const Two value = widen_columns(values[p], T());
      Two sum{0.0f, 0.0f};
#pragma unroll
      for (int a = 0; a < kWindows; ++a) {
        if (!kFull && a >= windows) continue;
        const Two own = grad(a, p);
        sum.first = fmaf(weight[a], own.first, sum.first);
        sum.second = fmaf(weight[a], own.second, sum.second);
        float& chain = chains[a * kJoined];
        chain = fmaf(own.second, value.second, fmaf(own.first, value.first, chain));
      }
      if (valid) store_pair(out, p, sum);
    }
  }

  // All sixteen tokens; the sums of dw go to [kWindows][kGroup].
  template <bool kFull>
  __device__ void visit_tokens(float* sums) {
#pragma unroll 1
    for (int joined = 0; joined < kTokens; joined += kJoined) {
      float chains[kTeam] = {};
#pragma unroll
      for (int loaded = 0; loaded < kJoined; loaded += kLoaded) {
        uint32_t values[kLoaded][kPairs];
#pragma unroll
        for (int u = 0; u < kLoaded; ++u) {
          const T* const row = x + (joined + loaded + u) * task.x_token;
#pragma unroll
          for (int p = 0; p < kPairs; ++p) {
            values[u][p] = valid && p < pairs ? load_pair(row, p) : 0;
          }
        }
#pragma unroll
        for (int u = 0; u < kLoaded; ++u) {
          visit_token<kFull>(joined + loaded + u, values[u], chains + loaded + u);
        }
      }
      const float sum = join_chains(chains, lane);
      if (valid) sums[lane / kJoined * kTokens + joined + lane % kJoined] = sum;
    }
  }
};

// What the visits in shared memory have for dw, in order.
template <int kWindows>
__device__ void add_values(const Task& task, const UsualShared& shared, int64_t slab, int64_t head,
                           int visits, bool first) {
  const int64_t steps = task.step / kGroup;
  double* const totals = task.partials + (slab * task.heads + head) * task.window;
  for (int64_t j = thread_index(); j < task.window; j += thread_count()) {
    const int64_t sixteen = j / kGroup;
    const int64_t window = divide(sixteen, steps);
    const int64_t inside = sixteen - window * steps;
    const float* from = shared.values + j % kGroup;
    double total = first ? 0.0 : totals[j];
    for (int i = 0; i < visits; ++i, from += kWindows * kGroup) {
      const bool has =
          shared.inside[i] == inside && shared.begin[i] <= window && window < shared.end[i];
      if (has) total += static_cast<double>(from[(window - shared.begin[i]) * kGroup]);
    }
    totals[j] = total;
  }
}

// Visits [begin, begin + count) of a head.
template <class T, int kWindows, int kPairs, bool kHalf>
__device__ void visit_chunk(const Task& task, UsualShared& shared, const float* weights,
                            int64_t head, int64_t begin, int count) {
  const int lane = thread_index() % kTeam;
  const int team = thread_index() / kTeam;
  const int teams = thread_count() / kTeam;
  // The two teams of a warp go on together.
  for (int i = team; i - team % 2 < count; i += teams) {
    const bool valid = i < count;
    const int number = valid ? i : count - 1;
    const Visit visit = place_visit(task, begin + number);
    const int64_t x_at = visit.token * task.x_token + head * task.x_head + visit.column;
    const int64_t dx_at = visit.token * task.dx_token + head * task.dx_head + visit.column;
    const int64_t dy_at = (visit.latest - visit.begin) * task.dy_window + head * task.dy_head;
    constexpr auto kBoth = static_cast<int>(kPairColumns);
    const int pairs = (visit.columns + kBoth - 1) / kBoth;
    Visitor<T, kWindows, kPairs, kHalf> visitor{
        task,
        lane,
        valid,
        visit.end - visit.begin,
        pairs,
        visit.columns % kBoth != 0 ? pairs - 1 : -1,
        static_cast<const T*>(task.x) + x_at,
        static_cast<const T*>(task.dy) + dy_at + visit.column,
        static_cast<T*>(task.dx) + dx_at,
        weights + visit.first,
        {},
        {}};
    if (valid && lane == 0) {
      shared.begin[i] = visit.begin;
      shared.end[i] = visit.end;
      shared.inside[i] = visit.inside;
    }
    visitor.load_dy();
    float* const sums = shared.values + number * kWindows * kGroup;
    if (__ballot_sync(cuda::kAllLanes, visitor.windows == kWindows ? 1 : 0) == cuda::kAllLanes) {
      visitor.template visit_tokens<true>(sums);
    } else {
      visitor.template visit_tokens<false>(sums);
    }
  }
}

template <class T, int kWindows, int kPairs, bool kHalf>
__global__ void __launch_bounds__(visit_tuning(kWindows, kPairs).most_teams* kTeam, 1)
    visit_usual(const __grid_constant__ Task task) {
  __shared__ UsualShared shared;
  for (int64_t block = cuda::block_index(); block < task.plan.visit_blocks;
       block += cuda::block_count()) {
    const int64_t slab = divide(block, task.heads);
    const int64_t head = block - slab * task.heads;
    const float* const weights = weights_of<T>(task, head, shared.weights);
    const Visits visits = visits_of(task, slab);
    for (int64_t begin = visits.begin; begin < visits.end; begin += task.plan.chunk) {
      const int64_t left = visits.end - begin;
      const auto count = static_cast<int>(left < task.plan.chunk ? left : task.plan.chunk);
      visit_chunk<T, kWindows, kPairs, kHalf>(task, shared, weights, head, begin, count);
      __syncthreads();
      add_values<kWindows>(task, shared, slab, head, count, begin == visits.begin);
      __syncthreads();
    }
  }
}

}  // namespace aclgrad::nsa_compress_grad::gpu

#endif  // ACLGRAD_OPS_NSA_COMPRESS_GRAD_USUAL_CUH_
