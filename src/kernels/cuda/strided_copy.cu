// SPDX-License-Identifier: Apache-2.0
// One thread an element: its number is taken apart into indices of the common shape, from which
// both places follow.
#include "kernels/cuda/strided_copy.h"

#include <algorithm>

#include "base/checked.h"
#include "base/dtype.h"
#include "kernels/cuda/launch.cuh"

namespace aclgrad {
namespace {

constexpr unsigned kThreads = 256;

// The largest elements, which are aligned to half of their size.
struct TwoWords {
  uint64_t first, second;
};

// The loops of both views, innermost first. Strides in elements.
struct Loops {
  int rank = 0;
  int64_t count = 1;
  int64_t dims[kMaxRank] = {};
  int64_t source[kMaxRank] = {};
  int64_t target[kMaxRank] = {};
};

// Without dimensions of size 1, and with neighbours joined that step as one in both views.
Loops loops_of(const View& from, const View& to) {
  Loops loops;
  for (int i = to.rank - 1; i >= 0; --i) {
    const auto index = static_cast<size_t>(i);
    const int64_t dim = to.dims[index];
    loops.count *= dim;
    if (dim == 1) continue;
    const int last = loops.rank - 1;
    if (last >= 0 && from.strides[index] == loops.source[last] * loops.dims[last] &&
        to.strides[index] == loops.target[last] * loops.dims[last]) {
      loops.dims[last] *= dim;
      continue;
    }
    loops.dims[loops.rank] = dim;
    loops.source[loops.rank] = from.strides[index];
    loops.target[loops.rank] = to.strides[index];
    ++loops.rank;
  }
  return loops;
}

template <class Element>
__device__ void copy_element(const Loops& loops, int64_t number, const Element* source,
                             Element* target) {
  int64_t from = 0;
  int64_t to = 0;
  for (int i = 0; i < loops.rank; ++i) {
    const int64_t index = number % loops.dims[i];
    number /= loops.dims[i];
    from += index * loops.source[i];
    to += index * loops.target[i];
  }
  target[to] = source[from];
}

template <class Element>
__global__ void copy_elements(Loops loops, const Element* source, Element* target) {
  const int64_t stride = cuda::block_count() * cuda::thread_count();
  for (int64_t i = cuda::block_index() * cuda::thread_count() + cuda::thread_index();
       i < loops.count; i += stride) {
    copy_element(loops, i, source, target);
  }
}

template <class Element>
__global__ void copy_in_order(Loops loops, const Element* source, Element* target) {
  for (int64_t i = 0; i < loops.count; ++i) copy_element(loops, i, source, target);
}

template <class Element>
CudaAnswer run(const Loops& loops, const void* source, void* target, bool sequential,
               const CudaQueue& queue) {
  const auto* from = static_cast<const Element*>(source);
  auto* to = static_cast<Element*>(target);
  if (sequential) return cuda::launch(queue, {1, 1}, copy_in_order<Element>, loops, from, to);
  const int64_t blocks = cuda::blocks_for(ceil_div(loops.count, int64_t{kThreads}));
  return cuda::launch(queue, {blocks, kThreads}, copy_elements<Element>, loops, from, to);
}

}  // namespace

CudaAnswer cuda_strided_copy(const View& from, const void* source, const View& to, void* target,
                             bool sequential, const CudaQueue& queue) noexcept {
  const Loops loops = loops_of(from, to);
  if (loops.count == 0) return cudaSuccess;
  switch (dtype_size(to.dtype)) {
    case 1:
      return run<uint8_t>(loops, source, target, sequential, queue);
    case 2:
      return run<uint16_t>(loops, source, target, sequential, queue);
    case 4:
      return run<uint32_t>(loops, source, target, sequential, queue);
    case 8:
      return run<uint64_t>(loops, source, target, sequential, queue);
    default:
      return run<TwoWords>(loops, source, target, sequential, queue);
  }
}

}  // namespace aclgrad
