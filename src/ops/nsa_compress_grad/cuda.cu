// SPDX-License-Identifier: Apache-2.0
// NsaCompressGrad on a GPU, in gather form: every covered token is visited once, its row of x read,
// its row of dx written, and both go into dw. A block takes a slab and a head, and leaves FP64
// totals of dw; a second kernel joins those of the slabs in order and writes the zeros of tokens
// that no window covers. Order of the additions as in tree.h, so the bits are the CPU's.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/checked.h"
#include "kernels/cuda/launch.cuh"
#include "ops/nsa_compress_grad/any.cuh"
#include "ops/nsa_compress_grad/plan.h"
#include "ops/nsa_compress_grad/problem.h"
#include "ops/nsa_compress_grad/task.cuh"
#include "ops/nsa_compress_grad/usual.cuh"

namespace aclgrad::nsa_compress_grad {
namespace {

using namespace gpu;

constexpr int kJoinSlabs = kCudaTuning.join_slabs;
constexpr unsigned kJoinThreads = kJoinSlabs * static_cast<unsigned>(kGroup);
constexpr auto kConvertThreads = static_cast<unsigned>(kCudaTuning.convert_threads);

// Words of a list, as they travel with a launch.
struct ListPiece {
  int count;
  int64_t words[kListWords];
};
__global__ void __launch_bounds__(kConvertThreads)
    write_piece(const __grid_constant__ ListPiece piece, int64_t* to) {
  for (int i = thread_index(); i < piece.count; i += thread_count()) to[i] = piece.words[i];
}

// FP32 weights [heads][window] of windows that are too long for a block.
template <class T>
__global__ void __launch_bounds__(kConvertThreads)
    convert_weights(const __grid_constant__ Task task) {
  const int64_t count = task.heads * task.window;
  const int64_t stride = cuda::block_count() * thread_count();
  for (int64_t i = cuda::block_index() * thread_count() + thread_index(); i < count; i += stride) {
    const int64_t head = i / task.window;
    const int64_t j = i - head * task.window;
    task.weights[i] =
        cuda::widen(static_cast<const T*>(task.w)[j * task.w_token + head * task.w_head]);
  }
}

// Sixteen weights of one head: the slabs' totals in order.
template <class T>
__device__ void join_slabs(const Task& task, int64_t block, double (&totals)[kMostSlabs][kGroup]) {
  const int64_t first = block * kGroup;
  const int64_t head = divide(first, task.window);
  const int64_t own = thread_index() % kGroup;
  const int64_t weights = task.heads * task.window;
  for (int64_t slab = thread_index() / kGroup; slab < task.slabs; slab += kJoinSlabs) {
    totals[slab][own] = task.partials[slab * weights + first + own];
  }
  __syncthreads();
  if (thread_index() < kGroup) {
    double total = 0.0;
    for (int64_t slab = 0; slab < task.slabs; ++slab) total += totals[slab][own];
    const int64_t j = first + own - head * task.window;
    static_cast<T*>(task.dw)[j * task.dw_token + head * task.dw_head] =
        cuda::narrow<T>(static_cast<float>(total));
  }
  __syncthreads();
}

// dx of some uncovered tokens, numbered over all gaps. kColumns neighbours in one access.
template <class T, int kColumns>
__device__ void fill_gaps(const Task& task, int64_t block) {
  struct alignas(kColumns * sizeof(T)) Zeros {
    T each[kColumns] = {};
  };
  const int64_t begin = block * task.plan.gap_tokens;
  const int64_t left = task.gap_tokens - begin;
  const int64_t tokens = left < task.plan.gap_tokens ? left : task.plan.gap_tokens;
  const int64_t accesses = task.width / kColumns;
  const Gap* const gaps = task.gaps();
  for (int64_t i = thread_index(); i < tokens * task.heads * accesses; i += thread_count()) {
    const int64_t row = divide(i, accesses);
    const int64_t token = divide(row, task.heads);
    const int64_t number = begin + token;
    int64_t found = 0;
    for (int64_t end = task.gap_count; end - found > 1;) {
      const int64_t middle = found + (end - found) / 2;
      (gaps[middle].before <= number ? found : end) = middle;
    }
    const int64_t at = (gaps[found].token + number - gaps[found].before) * task.dx_token +
                       (row - token * task.heads) * task.dx_head + (i - row * accesses) * kColumns;
    *reinterpret_cast<Zeros*>(static_cast<T*>(task.dx) + at) = Zeros();
  }
}

template <class T, int kColumns>
__global__ void __launch_bounds__(kJoinThreads) join_and_fill(const __grid_constant__ Task task) {
  __shared__ double totals[kMostSlabs][kGroup];
  const int64_t blocks = task.plan.join_blocks + task.plan.gap_blocks;
  for (int64_t block = cuda::block_index(); block < blocks; block += cuda::block_count()) {
    if (block < task.plan.join_blocks) {
      join_slabs<T>(task, block, totals);
    } else {
      fill_gaps<T, kColumns>(task, block - task.plan.join_blocks);
    }
  }
}

// ---- The host
// ------------------------------------------------------------------------------------

// Every row of these begins at a multiple of `elements`.
bool rows_fit(const void* address, const View& view, int64_t elements) {
  if (reinterpret_cast<uintptr_t>(address) % (static_cast<size_t>(elements) * sizeof(uint16_t)) !=
      0) {
    return false;
  }
  for (size_t i = 0; i < 2; ++i) {
    if (view.dims[i] > 1 && view.strides[i] % elements != 0) return false;
  }
  return true;
}

template <class T, int kWindows>
cudaError_t launch_usual(const Task& task, const cuda::Geometry& geometry, const CudaQueue& queue) {
  if (task.plan.half) {
    return cuda::launch(queue, geometry, visit_usual<T, kWindows, 8, true>, task);
  }
  return task.plan.pairs == 4
             ? cuda::launch(queue, geometry, visit_usual<T, kWindows, 4, false>, task)
             : cuda::launch(queue, geometry, visit_usual<T, kWindows, 8, false>, task);
}

template <class T>
cudaError_t launch_visits(const Task& task, const CudaQueue& queue) {
  const cuda::Geometry& geometry = task.plan.visit;
  switch (task.plan.windows) {
    case 2:
      return launch_usual<T, 2>(task, geometry, queue);
    case 4:
      return launch_usual<T, 4>(task, geometry, queue);
    case 8:
      return launch_usual<T, 8>(task, geometry, queue);
    default:
      return cuda::launch(queue, geometry, visit_any<T>, task);
  }
}

template <class T>
cudaError_t launch(const Problem& problem, const Task& task, const CudaQueue& queue) {
  const cudaError_t converted = cuda::launch(queue, task.plan.convert, convert_weights<T>, task);
  if (converted != cudaSuccess) return converted;
  if (const cudaError_t error = launch_visits<T>(task, queue); error != cudaSuccess) return error;
  constexpr int kColumns = 8;
  return rows_fit(task.dx, problem.dx, kColumns)
             ? cuda::launch(queue, task.plan.join, join_and_fill<T, kColumns>, task)
             : cuda::launch(queue, task.plan.join, join_and_fill<T, 1>, task);
}

Task make_task(const Problem& problem, const Plan& plan, const Addresses& at) {
  Task task{};
  task.x = at.x;
  task.dy = at.dy;
  task.w = at.w;
  task.dx = at.dx;
  task.dw = at.dw;
  task.weights = static_cast<float*>(at.weight_region);
  task.partials = static_cast<double*>(at.partial_region);
  task.heads = problem.heads;
  task.width = problem.width;
  task.window = problem.window;
  task.step = problem.step;
  task.x_token = problem.x.strides[0];
  task.x_head = problem.x.strides[1];
  task.dy_window = problem.dy.strides[0];
  task.dy_head = problem.dy.strides[1];
  task.dx_token = problem.dx.strides[0];
  task.dx_head = problem.dx.strides[1];
  task.w_token = problem.w.strides[0];
  task.w_head = problem.w.strides[1];
  task.dw_token = problem.dw.strides[0];
  task.dw_head = problem.dw.strides[1];
  task.groups = problem.groups;
  task.slabs = plan.slabs;
  task.slab_groups = plan.slab_groups;
  task.gap_tokens = problem.gap_tokens;
  task.sequence_count = static_cast<int64_t>(problem.sequences.size());
  task.gap_count = static_cast<int64_t>(problem.gaps.size());
  const bool pairs_fit = rows_fit(at.x, problem.x, 2) && rows_fit(at.dy, problem.dy, 2) &&
                         rows_fit(at.dx, problem.dx, 2);
  task.plan = plan_cuda(problem, plan, pairs_fit);
  return task;
}

cudaError_t launch_for_type(const Problem& problem, const Task& task, const CudaQueue& queue) {
  return problem.x.dtype == ACL_FLOAT16 ? launch<float16_t>(problem, task, queue)
                                        : launch<bfloat16_t>(problem, task, queue);
}

// A list of structs that are 64-bit words.
template <class List>
cudaError_t write_list_to(void* to, const List& list, const CudaQueue& queue) {
  constexpr size_t kWord = sizeof(int64_t);
  static_assert(sizeof(*list.begin()) % kWord == 0);
  const size_t words = list.size() * (sizeof(*list.begin()) / kWord);
  const auto* const from = reinterpret_cast<const std::byte*>(list.begin());
  for (size_t first = 0; first < words; first += kListWords) {
    ListPiece piece;
    const size_t count = std::min(words - first, size_t{kListWords});
    piece.count = static_cast<int>(count);
    std::memcpy(piece.words, from + first * kWord, count * kWord);
    const cudaError_t error = cuda::launch(queue, {1, kConvertThreads}, write_piece, piece,
                                           static_cast<int64_t*>(to) + first);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t write_lists(const Problem& problem, void* region, Task& task, const CudaQueue& queue) {
  if (region == nullptr) {
    std::copy(problem.sequences.begin(), problem.sequences.end(), task.few_sequences);
    std::copy(problem.gaps.begin(), problem.gaps.end(), task.few_gaps);
    return cudaSuccess;
  }
  auto* const sequences = static_cast<Sequence*>(region);
  auto* const gaps = reinterpret_cast<Gap*>(sequences + problem.sequences.size());
  task.many_sequences = sequences;
  task.many_gaps = gaps;
  const cudaError_t error = write_list_to(sequences, problem.sequences, queue);
  return error != cudaSuccess ? error : write_list_to(gaps, problem.gaps, queue);
}

}  // namespace

CudaAnswer run_cuda(const Problem& problem, const Plan& plan, const Addresses& at,
                    const CudaQueue& queue) {
  Task task = make_task(problem, plan, at);
  void* const region = list_bytes(problem) > 0 ? at.list_region : nullptr;
  if (const cudaError_t error = write_lists(problem, region, task, queue); error != cudaSuccess) {
    return error;
  }
  return launch_for_type(problem, task, queue);
}

}  // namespace aclgrad::nsa_compress_grad
