// SPDX-License-Identifier: Apache-2.0
// The kernel of the tests' own operator: an element a thread, all in any order.
#include "base/checked.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/offsets.cuh"
#include "tensor/scale_add_task.h"

namespace aclgrad::test {
namespace {

constexpr unsigned kThreads = 32;

struct Places {
  cuda::Offsets x, y, out, copy_out;
};

__global__ void scale_add(const __grid_constant__ ScaleAddTask task,
                          const __grid_constant__ Places places) {
  const float* const x = task.addresses[0];
  const float* const y = task.addresses[1];
  float* const copy_out = task.addresses[3];
  const int64_t first = cuda::block_index() * cuda::thread_count() + cuda::thread_index();
  const int64_t stride = cuda::block_count() * cuda::thread_count();
  for (int64_t i = first; i < task.book; i += stride) task.region[i] = 0x77;
  for (int64_t i = first; i < task.count; i += stride) {
    const float from = x[places.x(i)];
    const float added = y == nullptr ? 0.0f : y[places.y(i)];
    task.addresses[2][places.out(i)] = 2.0f * from + added;
    if (copy_out != nullptr) copy_out[places.copy_out(i)] = from;
  }
  if (task.record != nullptr && first == 0) task.record->rule = 1;
}

cuda::Offsets offsets_of(const View& view) { return cuda::Offsets(view, view.rank); }

}  // namespace

CudaAnswer scale_add_on_cuda(const ScaleAddTask& task, const CudaQueue& queue) {
  Places places{};
  places.x = offsets_of(task.views[0]);
  if (task.addresses[1] != nullptr) places.y = offsets_of(task.views[1]);
  places.out = offsets_of(task.views[2]);
  if (task.addresses[3] != nullptr) places.copy_out = offsets_of(task.views[3]);
  const cuda::Geometry geometry{cuda::blocks_for(ceil_div(task.count, int64_t{kThreads})),
                                kThreads};
  return cuda::launch(queue, geometry, scale_add, task, places);
}

}  // namespace aclgrad::test
