// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sort.h"

#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.cuh"

namespace aclgrad {
namespace {

// Asks for the scratch's size where there is no scratch, as cub does.
template <class Number>
cudaError_t sort(const SortTask& task, void* scratch, size_t& bytes, const CudaQueue& queue,
                 int& sorted) {
  if (const cudaError_t error = cuda::use_device(queue); error != cudaSuccess) return error;
  const auto number = [](void* buffer) { return static_cast<Number*>(buffer); };
  cub::DoubleBuffer<Number> keys(number(task.keys[0]), number(task.keys[1]));
  cub::DoubleBuffer<Number> values(number(task.values[0]), number(task.values[1]));
  // cub asks for the last error, and must not find that of another call.
  static_cast<void>(cudaGetLastError());
  const cudaError_t error =
      cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, values, task.count, 0, task.bits,
                                      static_cast<cudaStream_t>(queue.stream));
  sorted = keys.selector;
  return cuda::taken(error);
}

cudaError_t sort_numbers(const SortTask& task, void* scratch, size_t& bytes, const CudaQueue& queue,
                         int& sorted) {
  return task.wide ? sort<uint64_t>(task, scratch, bytes, queue, sorted)
                   : sort<uint32_t>(task, scratch, bytes, queue, sorted);
}

}  // namespace

CudaAnswer cuda_sort_scratch(const SortTask& task, const CudaQueue& queue, size_t& bytes) noexcept {
  int sorted = 0;
  return sort_numbers(task, nullptr, bytes, queue, sorted);
}

CudaAnswer cuda_sort(const SortTask& task, void* scratch, size_t scratch_bytes,
                     const CudaQueue& queue, int& sorted) noexcept {
  return sort_numbers(task, scratch, scratch_bytes, queue, sorted);
}

}  // namespace aclgrad
