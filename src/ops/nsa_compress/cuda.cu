// SPDX-License-Identifier: Apache-2.0
// NsaCompress on a GPU, in gather form: a thread computes some neighbouring columns of one window
// and head, whose tokens neighbouring windows read too and find in the caches. Chains are added and
// joined in the order of tree.h, so the bits are the CPU's.
#include <algorithm>

#include "base/checked.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/nsa_compress/plan.h"
#include "ops/nsa_compress/problem.h"
#include "ops/nsa_compress/tree.h"

namespace aclgrad::nsa_compress {
namespace {

// One launch as the kernel sees it. The table of sequences travels with it: a copy from the host's
// memory would wait for the stream.
struct Task {
  const void *x, *w;
  void* y;
  int64_t heads, width, window, step, windows;
  int64_t x_token, x_head, w_token, w_head, y_window, y_head;
  int64_t first_window;  // windows [first_window, first_window + windows) are the launch's
  int64_t count;         // of sequences
  Sequence sequences[kTuning.most_sequences];
};

__device__ int64_t first_token(const Task& task, int64_t window) {
  int64_t found = 0;
  for (int64_t end = task.count; end - found > 1;) {
    const int64_t middle = found + (end - found) / 2;
    (task.sequences[middle].first_window <= window ? found : end) = middle;
  }
  const Sequence& sequence = task.sequences[found];
  return sequence.token + (window - sequence.first_window) * task.step;
}

template <class T, int kColumns>
struct alignas(kColumns * sizeof(T)) Columns {
  T each[kColumns];
};

// In one access, which the compiler does not make of eight rounded numbers by itself.
template <class T, int kColumns>
__device__ void store_columns(T* to, const float (&values)[kColumns]) {
  if constexpr (kColumns == 8) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t upper = cuda::narrow<T>(values[2 * i + 1]).bits;
      words[i] = upper << 16 | cuda::narrow<T>(values[2 * i]).bits;
    }
    __stcs(reinterpret_cast<uint4*>(to), uint4{words[0], words[1], words[2], words[3]});
  } else {
    for (int c = 0; c < kColumns; ++c) to[c] = cuda::narrow<T>(values[c]);
  }
}

// The chain of one group of tokens.
template <class T, int kColumns>
__device__ void add_group(const Task& task, const T* x, const T* w, float (&sum)[kColumns]) {
  for (float& each : sum) each = 0.0f;
#pragma unroll
  for (int u = 0; u < static_cast<int>(kGroup); ++u) {
    const float weight = cuda::widen(w[u * task.w_token]);
    const auto values = *reinterpret_cast<const Columns<T, kColumns>*>(x + u * task.x_token);
    for (int c = 0; c < kColumns; ++c) {
      sum[c] = fmaf(weight, cuda::widen(values.each[c]), sum[c]);
    }
  }
}

// Joins the chain of group `number` with those that wait (next_of() in chains.h says the same).
template <int kColumns>
__device__ void join_group(int number, bool last, float (&waiting)[kLevels][kColumns],
                           float (&sum)[kColumns]) {
  bool open = true;
#pragma unroll
  for (int level = 0; level < static_cast<int>(kLevels); ++level) {
    if (!open) continue;
    if ((number >> level & 1) != 0) {
      for (int c = 0; c < kColumns; ++c) sum[c] = waiting[level][c] + sum[c];
    } else if (!last) {
      for (int c = 0; c < kColumns; ++c) waiting[level][c] = sum[c];
      open = false;
    }
  }
}

template <class T, int kColumns>
__global__ void __launch_bounds__(kTuning.threads) sum_windows(const __grid_constant__ Task task) {
  const int64_t pieces = task.windows * task.heads * (task.width / kColumns);
  const int64_t stride = cuda::block_count() * cuda::thread_count();
  const int groups = static_cast<int>(task.window / kGroup);
  for (int64_t piece = cuda::block_index() * cuda::thread_count() + cuda::thread_index();
       piece < pieces; piece += stride) {
    const auto [own_window, head, column] = piece_at(piece, task.heads, task.width, kColumns);
    const int64_t window = task.first_window + own_window;
    const T* const x = static_cast<const T*>(task.x) + first_token(task, window) * task.x_token +
                       head * task.x_head + column;
    const T* const w = static_cast<const T*>(task.w) + head * task.w_head;
    float waiting[kLevels][kColumns];
    float sum[kColumns];
    for (int group = 0; group < groups; ++group) {
      add_group<T, kColumns>(task, x + group * kGroup * task.x_token,
                             w + group * kGroup * task.w_token, sum);
      join_group<kColumns>(group, group + 1 == groups, waiting, sum);
    }
    T* const y = static_cast<T*>(task.y) + window * task.y_window + head * task.y_head + column;
    store_columns<T, kColumns>(y, sum);
  }
}

template <class T>
cudaError_t launch_sums(const Task& task, const CudaQueue& queue) {
  constexpr int64_t kColumns = kTuning.columns;
  const auto whole = [](int64_t elements) { return elements % kColumns == 0; };
  const auto aligned = [](const void* address) {
    return reinterpret_cast<uintptr_t>(address) % (kColumns * sizeof(T)) == 0;
  };
  const bool wide = whole(task.width) && whole(task.x_token) && whole(task.x_head) &&
                    whole(task.y_window) && whole(task.y_head) && aligned(task.x) &&
                    aligned(task.y);
  const cuda::Geometry geometry =
      plan_cuda(task.windows, task.heads, task.width, wide ? kColumns : 1);
  return wide ? cuda::launch(queue, geometry, sum_windows<T, kTuning.columns>, task)
              : cuda::launch(queue, geometry, sum_windows<T, 1>, task);
}

cudaError_t launch(const Problem& problem, const Task& task, const CudaQueue& queue) {
  return problem.x.dtype == ACL_FLOAT16 ? launch_sums<float16_t>(task, queue)
                                        : launch_sums<bfloat16_t>(task, queue);
}

}  // namespace

CudaAnswer run_cuda(const Problem& problem, const Addresses& at, const CudaQueue& queue) {
  Task task{};
  task.x = at.x;
  task.w = at.w;
  task.y = at.y;
  task.heads = problem.heads;
  task.width = problem.width;
  task.window = problem.window;
  task.step = problem.step;
  task.x_token = problem.x.strides[0];
  task.x_head = problem.x.strides[1];
  task.w_token = problem.w.strides[0];
  task.w_head = problem.w.strides[1];
  task.y_window = problem.y.strides[0];
  task.y_head = problem.y.strides[1];
  const auto all = static_cast<int64_t>(problem.sequences.size());
  for (int64_t first = 0; first < all; first += task.count) {
    const Part part = part_from(problem.sequences, first);
    task.count = part.sequences;
    task.first_window = part.first_window;
    task.windows = part.windows;
    std::copy_n(problem.sequences.begin() + first, task.count, task.sequences);
    if (const cudaError_t error = launch(problem, task, queue); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace aclgrad::nsa_compress
