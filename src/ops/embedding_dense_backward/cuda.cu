// SPDX-License-Identifier: Apache-2.0
// EmbeddingDenseBackward on a GPU. The indices become keys (table rows), cub sorts their positions
// by them, and one kernel writes the table: blocks of the sweep take equal numbers of table rows
// and gradient rows together, and write zeros or the sum of a short run; other blocks, which come
// first, take the segments of long runs. What long runs of several segments left is folded by a
// last kernel. Order of the additions as in tree.h, so the bits are the CPU's.
//
// Nobody places the blocks' work beforehand: a block of the sweep searches the sorted keys for its
// first entry, and a block of long runs owns the segments that begin at its positions.
#include <algorithm>
#include <cstring>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sort.h"
#include "ops/embedding_dense_backward/plan.h"
#include "ops/embedding_dense_backward/problem.h"
#include "ops/embedding_dense_backward/runs.cuh"
#include "ops/embedding_dense_backward/sweep.cuh"
#include "ops/embedding_dense_backward/task.cuh"

namespace aclgrad::embedding_dense_backward {
namespace {

using namespace gpu;

__global__ void __launch_bounds__(kCudaTuning.read_threads)
    read_keys(const __grid_constant__ Task task) {
  const int64_t stride = cuda::block_count() * thread_count();
  for (int64_t i = cuda::block_index() * thread_count() + thread_index(); i < task.rows;
       i += stride) {
    const int64_t row = read_index(task, i).row;
    const int64_t key = row < 0               ? bad_key(task.table_rows)
                        : row == task.padding ? padding_key(task.table_rows)
                                              : row;
    task.keys.set(i, key);
    task.positions.set(i, i);
  }
}

// The first of the bad indices, which the sort has put behind all others. For one warp.
__device__ void report_first_bad(const Task& task) {
  const int64_t bad = bad_key(task.table_rows);
  if (task.rows == 0 || task.keys[task.rows - 1] != bad) return;
  const int64_t first =
      warp_partition_point(0, task.rows, [&](int64_t i) { return task.keys[i] < bad; });
  if (cuda::lane_index() != 0) return;
  const int64_t position = task.positions[first];
  const Read read = read_index(task, position);
  task.record->numbers[0] = position;
  task.record->numbers[1] = read.integer;
  memcpy(&task.record->numbers[2], &read.floating, sizeof(double));
  task.record->rule = 1;
}

template <int kColumns>
union Shared {
  SweepShared sweep;
  RunShared<kColumns> runs;
};

template <class T, class TOut, int kColumns>
__global__ void __launch_bounds__(kThreads, kCudaTuning.blocks_of_sm)
    write_table(const __grid_constant__ Task task) {
  __shared__ Shared<kColumns> shared;
  const int64_t run_blocks = task.plan.run_blocks();
  const int64_t blocks = run_blocks + task.plan.sweep_blocks();
  for (int64_t block = cuda::block_index(); block < blocks; block += cuda::block_count()) {
    if (block < run_blocks) {
      sum_long_runs<T, TOut, kColumns>(task, shared.runs, block);
    } else {
      sweep<T, TOut, kColumns>(task, shared.sweep, block - run_blocks);
    }
    __syncthreads();
  }
  if (cuda::block_index() + 1 == cuda::block_count() && cuda::warp_index() == 0) {
    report_first_bad(task);
  }
}

// The runs of several segments from their totals, in order. A block takes the run that begins at
// the positions of one segment length and has at least two, by a range of columns.
template <class TOut>
__global__ void __launch_bounds__(kCudaTuning.fold_threads)
    fold_segments(const __grid_constant__ Task task) {
  constexpr int kBatch = kCudaTuning.fold_batch;
  const int64_t length = task.plan.segment;
  const int64_t ranges = (task.cols + thread_count() - 1) / thread_count();
  for (int64_t piece = cuda::block_index(); piece < task.plan.slots * ranges;
       piece += cuda::block_count()) {
    const int64_t unit = piece / ranges * length;
    const int64_t inside = unit + length;
    if (inside >= task.rows) continue;
    const int64_t key = task.keys[inside];
    if (!task.counts(key) || (unit > 0 && task.keys[unit - 1] == key)) continue;
    const int64_t begin =
        warp_partition_point(unit, inside, [&](int64_t i) { return task.keys[i] < key; });
    const int64_t end =
        warp_partition_point(inside, task.rows, [&](int64_t i) { return task.keys[i] <= key; });
    const int64_t segments = task.segments_of_run(end - begin);
    const int64_t column = piece % ranges * thread_count() + thread_index();
    if (begin == inside || segments == 1 || column >= task.cols) continue;
    const double* const from = task.partials + begin / length * task.cols + column;
    double total = 0.0;
    for (int64_t segment = 0; segment < segments; segment += kBatch) {
      double values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (segment + i < segments) values[i] = from[(segment + i) * task.cols];
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (segment + i < segments) total += values[i];
      }
    }
    store_total<TOut>(task, key, column, total, end - begin);
  }
}

// What the sort needs, in memory that comes with the run. Where the workspace has no buffers (few
// indices) or one of them is short (one pass on the CPU), they lie here too.
class Scratch {
 public:
  Scratch(const Problem& problem, const Plan& plan, const CudaQueue& queue) : queue_(queue) {
    sort_.wide = has_wide_numbers(problem);
    sort_.count = problem.rows;
    sort_.bits = plan_cuda(problem, 1).key_bits;
    numbers_ = round_up(problem.rows * (sort_.wide ? 8 : 4), kAlignment);
    // In the workspace nothing is between keys and positions.
    between_ = problem.rows * (sort_.wide ? 8 : 4);
    booked_[0] = plan.buffer_bytes[0] >= 2 * between_;
    booked_[1] = plan.buffer_bytes[1] > 0;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Bytes of it.
  cudaError_t measure(size_t& bytes) {
    const auto answer = static_cast<cudaError_t>(cuda_sort_scratch(sort_, queue_, sort_bytes_));
    bytes = round_up_bytes(sort_bytes_);
    for (int i = 0; i < 2; ++i) {
      places_[i] = bytes;
      if (!booked_[i]) bytes += static_cast<size_t>(2 * numbers_);
    }
    return answer;
  }
  // After measure().
  void place(const Addresses& at, void* memory) {
    memory_ = memory;
    for (int i = 0; i < 2; ++i) {
      buffers_[i] = booked_[i] ? at.buffers[static_cast<size_t>(i)]
                               : static_cast<std::byte*>(memory_) + places_[i];
      sort_.keys[i] = buffers_[i];
      sort_.values[i] = static_cast<std::byte*>(buffers_[i]) + between_;
    }
  }
  cudaError_t sort() {
    return static_cast<cudaError_t>(cuda_sort(sort_, memory_, sort_bytes_, queue_, sorted_));
  }

  Numbers keys() const { return {sort_.keys[sorted_], sort_.wide}; }
  Numbers positions() const { return {sort_.values[sorted_], sort_.wide}; }
  // Free after the sort: 8 bytes an index at least, aligned to them.
  void* spare() const { return buffers_[sorted_ ^ 1]; }

 private:
  static constexpr int64_t kAlignment = 64;
  static size_t round_up_bytes(size_t bytes) {
    return static_cast<size_t>(round_up(static_cast<int64_t>(bytes), kAlignment));
  }

  const CudaQueue& queue_;
  SortTask sort_;
  bool booked_[2];  // in the workspace
  size_t places_[2] = {};
  void* buffers_[2] = {};
  int64_t numbers_ = 0;
  int64_t between_ = 0;
  size_t sort_bytes_ = 0;
  void* memory_ = nullptr;
  int sorted_ = 0;
};

// Accesses of kColumns columns fit everywhere.
template <class T, class TOut, int kColumns>
bool fits(const Task& task) {
  const auto aligned = [](const void* address, size_t size) {
    return reinterpret_cast<uintptr_t>(address) % (kColumns * size) == 0;
  };
  return task.cols % kColumns == 0 && task.dw_stride % kColumns == 0 &&
         task.dy_places.multiples_of(kColumns) && aligned(task.dy, sizeof(T)) &&
         aligned(task.dw, sizeof(TOut));
}

template <class T, class TOut>
cudaError_t launch_table(const Problem& problem, Task& task, const CudaQueue& queue) {
  constexpr int kColumns =
      kCudaTuning.access_bytes / static_cast<int>(std::max(sizeof(T), sizeof(TOut)));
  const bool wide = fits<T, TOut, kColumns>(task);
  task.plan = plan_cuda(problem, wide ? kColumns : 1);
  const cudaError_t error =
      wide ? cuda::launch(queue, task.plan.table, write_table<T, TOut, kColumns>, task)
           : cuda::launch(queue, task.plan.table, write_table<T, TOut, 1>, task);
  return error != cudaSuccess ? error
                              : cuda::launch(queue, task.plan.fold, fold_segments<TOut>, task);
}

template <class T>
cudaError_t launch_for_output(const Problem& problem, Task& task, const CudaQueue& queue) {
  switch (problem.dw.dtype) {
    case ACL_FLOAT16:
      return launch_table<T, float16_t>(problem, task, queue);
    case ACL_BF16:
      return launch_table<T, bfloat16_t>(problem, task, queue);
    default:
      return launch_table<T, float>(problem, task, queue);
  }
}

cudaError_t launch_for_types(const Problem& problem, Task& task, const CudaQueue& queue) {
  switch (problem.dy.dtype) {
    case ACL_FLOAT16:
      return launch_for_output<float16_t>(problem, task, queue);
    case ACL_BF16:
      return launch_for_output<bfloat16_t>(problem, task, queue);
    default:
      return launch_for_output<float>(problem, task, queue);
  }
}

cudaError_t sort_indices(const Problem& problem, Task& task, Scratch& scratch,
                         const CudaQueue& queue) {
  const CudaPlan plan = plan_cuda(problem, 1);
  task.keys = scratch.keys();
  task.positions = scratch.positions();
  cudaError_t error = cuda::launch(queue, plan.read, read_keys, task);
  if (error == cudaSuccess) error = scratch.sort();
  task.keys = scratch.keys();
  task.positions = scratch.positions();
  task.partials = static_cast<double*>(scratch.spare());
  return error;
}

}  // namespace

CudaAnswer cuda_scratch(const Problem& problem, const Plan& plan, const CudaQueue& queue,
                        size_t& bytes) {
  bytes = 0;
  if (problem.rows == 0) return cudaSuccess;
  if (const cudaError_t error = cuda::use_device(queue); error != cudaSuccess) return error;
  return Scratch(problem, plan, queue).measure(bytes);
}

CudaAnswer run_cuda(const Problem& problem, const Plan& plan, const Addresses& at, void* scratch,
                    DeviceRecord* record, const CudaQueue& queue) {
  Task task{at.dy,
            at.indices,
            at.dw,
            record,
            {},
            {},
            nullptr,
            problem.rows,
            problem.table_rows,
            problem.cols,
            problem.padding,
            problem.dw.strides[0],
            cuda::Offsets(problem.dy, problem.dy.rank - 1),
            cuda::Offsets(problem.indices, problem.indices.rank),
            problem.indices.dtype,
            problem.scale_by_frequency,
            {}};
  if (const cudaError_t error = cuda::use_device(queue); error != cudaSuccess) return error;
  if (problem.rows > 0) {
    Scratch parts(problem, plan, queue);
    size_t bytes = 0;
    cudaError_t error = parts.measure(bytes);
    if (error != cudaSuccess) return error;
    parts.place(at, scratch);
    error = sort_indices(problem, task, parts, queue);
    if (error != cudaSuccess) return error;
  }
  return launch_for_types(problem, task, queue);
}

}  // namespace aclgrad::embedding_dense_backward
