// SPDX-License-Identifier: Apache-2.0
// A thread takes some accesses, whose numbers are taken apart into indices of the common shape; or
// a block takes a tile, reads it along the source and writes it along the target.
#include "kernels/cuda/strided_copy.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/strided_copy_plan.h"

namespace aclgrad {
namespace {

using cuda::CopyKind;
using cuda::CopyLoop;
using cuda::CopyPlace;
using cuda::CopyPlan;

constexpr int kAccesses = cuda::kCopyTuning.accesses;
constexpr auto kThreads = static_cast<int>(cuda::kCopyTuning.threads);

// The largest elements, which are aligned to half of their size.
struct TwoWords {
  uint64_t first, second;
};

template <class Access, class Number>
__global__ void __launch_bounds__(kThreads)
    copy_accesses(const __grid_constant__ CopyPlan plan, const Access* source, Access* target) {
  constexpr int64_t kOfBlock = int64_t{kThreads} * kAccesses;
  for (int64_t first = cuda::block_index() * kOfBlock + cuda::thread_index(); first < plan.count;
       first += cuda::block_count() * kOfBlock) {
    Access values[kAccesses];
    int64_t places[kAccesses];
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      const int64_t number = first + i * kThreads;
      if (number >= plan.count) continue;
      const CopyPlace place = cuda::place_in_copy(plan, static_cast<Number>(number));
      values[i] = source[place.source];
      places[i] = place.target;
    }
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      if (first + i * kThreads < plan.count) target[places[i]] = values[i];
    }
  }
}

// What is left of a loop from the tile on.
__device__ int tile_length(const CopyLoop& loop, int64_t tile, int edge) {
  const int64_t left = loop.count - tile * edge;
  return static_cast<int>(left < edge ? left : edge);
}

template <class Element>
__global__ void __launch_bounds__(kThreads)
    copy_tiles(const __grid_constant__ CopyPlan plan, const Element* source, Element* target) {
  constexpr int kEdge = cuda::tile_edge(sizeof(Element));
  constexpr int kPitch = cuda::tile_pitch(sizeof(Element));
  constexpr int kSteps = kEdge * kEdge / kThreads;
  __shared__ Element tile[kEdge * kPitch];  // rows run along the source
  const int line = cuda::thread_index() / kEdge;
  const int own = cuda::thread_index() % kEdge;
  for (int64_t number = cuda::block_index(); number < plan.count; number += cuda::block_count()) {
    const CopyPlace place = cuda::place_in_copy(plan, static_cast<uint32_t>(number));
    const int along_target = tile_length(plan.inner[0], place.index[0], kEdge);
    const int along_source = tile_length(plan.inner[1], place.index[1], kEdge);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int row = line + step * (kThreads / kEdge);
      if (row < along_target && own < along_source) {
        tile[row * kPitch + own] =
            source[place.source + row * plan.inner[0].source + own * plan.inner[1].source];
      }
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int column = line + step * (kThreads / kEdge);
      if (column < along_source && own < along_target) {
        target[place.target + own * plan.inner[0].target + column * plan.inner[1].target] =
            tile[own * kPitch + column];
      }
    }
    __syncthreads();
  }
}

template <class Element>
__global__ void copy_in_order(const __grid_constant__ CopyPlan plan, const Element* source,
                              Element* target) {
  for (int64_t i = 0; i < plan.count; ++i) {
    const CopyPlace place = cuda::place_in_copy(plan, static_cast<uint64_t>(i));
    target[place.target] = source[place.source];
  }
}

template <class Access>
CudaAnswer run(const CopyPlan& plan, const void* source, void* target, const CudaQueue& queue) {
  const auto* from = static_cast<const Access*>(source);
  auto* to = static_cast<Access*>(target);
  switch (plan.kind) {
    case CopyKind::kInOrder:
      return cuda::launch(queue, plan.launch, copy_in_order<Access>, plan, from, to);
    case CopyKind::kTiles:
      return cuda::launch(queue, plan.launch, copy_tiles<Access>, plan, from, to);
    default:
      return plan.wide
                 ? cuda::launch(queue, plan.launch, copy_accesses<Access, uint64_t>, plan, from, to)
                 : cuda::launch(queue, plan.launch, copy_accesses<Access, uint32_t>, plan, from,
                                to);
  }
}

}  // namespace

CudaAnswer cuda_strided_copy(const View& from, const void* source, const View& to, void* target,
                             bool sequential, const CudaQueue& queue) noexcept {
  const uintptr_t addresses =
      reinterpret_cast<uintptr_t>(source) | reinterpret_cast<uintptr_t>(target);
  const CopyPlan plan = cuda::plan_copy(from, to, sequential, addresses);
  switch (plan.bytes) {
    case 1:
      return run<uint8_t>(plan, source, target, queue);
    case 2:
      return run<uint16_t>(plan, source, target, queue);
    case 4:
      return run<uint32_t>(plan, source, target, queue);
    case 8:
      return run<uint64_t>(plan, source, target, queue);
    default:
      return addresses % cuda::kMostAccessBytes == 0 ? run<uint4>(plan, source, target, queue)
                                                     : run<TwoWords>(plan, source, target, queue);
  }
}

}  // namespace aclgrad
