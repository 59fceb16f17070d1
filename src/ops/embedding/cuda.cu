// SPDX-License-Identifier: Apache-2.0
// Embedding on a GPU: a copy of rows with canonical NaNs, sixteen bytes an access where all rows
// are aligned to that. Bad indices are only flagged meanwhile; a second kernel, which has nothing
// to do otherwise, looks for the first of them. Nothing is added, so the bits are the CPU's.
#include <type_traits>

#include "base/checked.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/offsets.cuh"
#include "ops/embedding/elements.h"
#include "ops/embedding/plan.h"
#include "ops/embedding/problem.h"

namespace aclgrad::embedding {
namespace {

constexpr int kAccessBytes = 16;

// One run as the kernels see it. Units are what a thread copies in one access.
struct Task {
  const void* table;
  const void* indices;
  void* y;
  DeviceRecord* record;
  int64_t rows, table_rows;
  int64_t table_stride;   // in elements
  int64_t element_parts;  // Bits of an element
  cuda::Offsets index_places, y_places;
  bool indices_are_wide;
  int64_t units;  // of a row
  int threads_of_row;
  int64_t parts;  // of a row
};

__device__ int64_t index_of(const Task& task, int64_t row) {
  const int64_t at = task.index_places(row);
  return task.indices_are_wide ? static_cast<const int64_t*>(task.indices)[at]
                               : static_cast<const int32_t*>(task.indices)[at];
}
__device__ bool is_bad(const Task& task, int64_t index) {
  return index < 0 || index >= task.table_rows;
}

template <class Bits, int kCount>
struct alignas(kCount * sizeof(Bits)) Unit {
  Bits each[kCount];
};

template <class Kind, class Bits>
__device__ Bits canonical(Bits bits) {
  if constexpr (Kind::kFloating) {
    constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
    if ((bits & kMagnitude) > Kind::kInfinity) return Kind::kQuiet;
  }
  return bits;
}

// Part after part of row after row, `threads_of_row` threads each.
template <class Kind, class Bits, int kCount>
__global__ void __launch_bounds__(kTuning.threads) copy_rows(Task task) {
  using Access = Unit<Bits, kCount>;
  const int64_t pieces = task.rows * task.parts;
  const int64_t at_once = cuda::thread_count() / task.threads_of_row;
  const int64_t own = cuda::thread_index() / task.threads_of_row;
  const int lane = cuda::thread_index() % task.threads_of_row;
  for (int64_t piece = cuda::block_index() * at_once + own; piece < pieces;
       piece += cuda::block_count() * at_once) {
    const int64_t row = piece / task.parts;
    const int64_t first = first_unit(piece % task.parts, task.threads_of_row, lane);
    const int64_t index = index_of(task, row);
    const bool bad = is_bad(task, index);
    // Written by many, always the same.
    if (bad) task.record->rule = 1;
    const auto* const from = static_cast<const Bits*>(task.table) +
                             (bad ? 0 : index * task.table_stride * task.element_parts);
    auto* const to = static_cast<Bits*>(task.y) + task.y_places(row) * task.element_parts;
    Access values[kTuning.accesses] = {};
#pragma unroll
    for (int i = 0; i < kTuning.accesses; ++i) {
      const int64_t unit = first + i * task.threads_of_row;
      if (!bad && unit < task.units) values[i] = reinterpret_cast<const Access*>(from)[unit];
    }
#pragma unroll
    for (int i = 0; i < kTuning.accesses; ++i) {
      const int64_t unit = first + i * task.threads_of_row;
      if (unit >= task.units) continue;
      for (Bits& bits : values[i].each) bits = canonical<Kind>(bits);
      reinterpret_cast<Access*>(to)[unit] = values[i];
    }
  }
}

// The bad index of the lowest position, if there is one at all.
__global__ void __launch_bounds__(kTuning.search_threads) find_first_bad(Task task) {
  __shared__ int64_t positions[kTuning.search_threads];
  if (task.record->rule == 0) return;  // the same for all threads: nobody writes it here
  int64_t found = task.rows;
  for (int64_t row = cuda::thread_index(); row < found; row += cuda::thread_count()) {
    if (is_bad(task, index_of(task, row))) found = row;
  }
  positions[cuda::thread_index()] = found;
  __syncthreads();
  if (cuda::thread_index() != 0) return;
  for (const int64_t position : positions) found = position < found ? position : found;
  task.record->numbers[0] = found;
  task.record->numbers[1] = index_of(task, found);
}

template <class Kind, class Bits, int kCount>
cudaError_t launch_units(Task& task, int64_t bits_of_row, const CudaQueue& queue) {
  task.units = bits_of_row / kCount;
  const CudaPlan plan = plan_cuda(task.rows, task.units);
  task.threads_of_row = plan.threads_of_row;
  task.parts = plan.parts;
  const cudaError_t error = cuda::launch(queue, plan.copy, copy_rows<Kind, Bits, kCount>, task);
  return error != cudaSuccess ? error : cuda::launch(queue, plan.search, find_first_bad, task);
}

template <class Kind, class Bits>
cudaError_t launch(const Problem& problem, Task& task, const CudaQueue& queue) {
  const auto size = static_cast<int64_t>(dtype_size(problem.table.dtype));
  task.element_parts = size / static_cast<int64_t>(sizeof(Bits));
  const int64_t row_bytes = problem.cols * size;
  const auto aligned = [](int64_t bytes) { return bytes % kAccessBytes == 0; };
  const bool wide = aligned(row_bytes) && aligned(task.table_stride * size) &&
                    aligned(static_cast<int64_t>(reinterpret_cast<uintptr_t>(task.table))) &&
                    aligned(static_cast<int64_t>(reinterpret_cast<uintptr_t>(task.y))) &&
                    task.y_places.multiples_of(kAccessBytes / size);
  const int64_t bits_of_row = problem.cols * task.element_parts;
  constexpr int kCount = kAccessBytes / static_cast<int>(sizeof(Bits));
  return wide ? launch_units<Kind, Bits, kCount>(task, bits_of_row, queue)
              : launch_units<Kind, Bits, 1>(task, bits_of_row, queue);
}

}  // namespace

CudaAnswer run_cuda(const Problem& problem, const Addresses& at, DeviceRecord* record,
                    const CudaQueue& queue) {
  Task task{at.table,
            at.indices,
            at.y,
            record,
            problem.rows,
            problem.table_rows,
            problem.table.strides[0],
            0,
            cuda::Offsets(problem.indices, problem.indices.rank),
            cuda::Offsets(problem.y, problem.y.rank - 1),
            problem.indices.dtype == ACL_INT64,
            0,
            0,
            0};
  CudaAnswer answer = cudaSuccess;
  visit_kind(problem.table.dtype, [&](auto kind) {
    using Kind = decltype(kind);
    if constexpr (Kind::kFloating) {
      answer = launch<Kind, typename Kind::Bits>(problem, task, queue);
    } else {
      switch (dtype_size(problem.table.dtype)) {
        case 1:
          answer = launch<Kind, uint8_t>(problem, task, queue);
          return;
        case 2:
          answer = launch<Kind, uint16_t>(problem, task, queue);
          return;
        case 4:
          answer = launch<Kind, uint32_t>(problem, task, queue);
          return;
        default:
          answer = launch<Kind, uint64_t>(problem, task, queue);
      }
    }
  });
  return answer;
}

}  // namespace aclgrad::embedding
