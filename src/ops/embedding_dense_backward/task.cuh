// SPDX-License-Identifier: Apache-2.0
// What the kernels of EmbeddingDenseBackward see, and how they read and write rows.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_TASK_CUH_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_TASK_CUH_

#include <cstdint>
#include <cstring>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/offsets.cuh"
#include "kernels/cuda/search.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/embedding_dense_backward/index.h"
#include "ops/embedding_dense_backward/plan.h"
#include "ops/embedding_dense_backward/problem.h"

namespace aclgrad::embedding_dense_backward::gpu {

using cuda::thread_count;
using cuda::thread_index;
using cuda::warp_partition_point;

constexpr auto kChainRows = static_cast<int>(kChain);
constexpr auto kThreads = static_cast<unsigned>(kCudaTuning.threads);
constexpr int kMostItems = static_cast<int>(kCudaTuning.most_items);
constexpr int kLongRun = static_cast<int>(kCudaTuning.long_run);
constexpr int kRunUnit = static_cast<int>(kCudaTuning.run_unit);

// Numbers of 32 or 64 bits, chosen once by the problem's size.
struct Numbers {
  void* at;
  bool wide;

  __device__ int64_t operator[](int64_t i) const {
    return wide ? static_cast<int64_t>(static_cast<const uint64_t*>(at)[i])
                : static_cast<int64_t>(static_cast<const uint32_t*>(at)[i]);
  }
  __device__ void set(int64_t i, int64_t value) const {
    if (wide) {
      static_cast<uint64_t*>(at)[i] = static_cast<uint64_t>(value);
    } else {
      static_cast<uint32_t*>(at)[i] = static_cast<uint32_t>(value);
    }
  }
};

// One run as the kernels see it.
struct Task {
  const void *dy, *indices;
  void* dw;
  DeviceRecord* record;
  Numbers keys, positions;
  double* partials;  // [slots][cols]
  int64_t rows, table_rows, cols;
  int64_t padding;
  int64_t dw_stride;
  cuda::Offsets dy_places, index_places;
  aclDataType index_type;
  bool scale_by_frequency;
  CudaPlan plan;

  __device__ bool counts(int64_t key) const { return key < table_rows; }
  // As segments_of(), whose std::max() wants the address of a constant of the host.
  __device__ int64_t segments_of_run(int64_t length) const {
    const int64_t segments = length / plan.segment;
    return segments < 1 ? 1 : segments;
  }
};

struct Read {
  int64_t integer;
  double floating;
  int64_t row;
};
template <class T>
__device__ Read read_as(const Task& task, int64_t position) {
  const auto* const from = static_cast<const T*>(task.indices);
  const Index<T> index(from[task.index_places(position)]);
  return {index.integer, index.floating, index.row(task.table_rows)};
}
__device__ inline Read read_index(const Task& task, int64_t position) {
  switch (task.index_type) {
    case ACL_FLOAT:
      return read_as<float>(task, position);
    case ACL_FLOAT16:
      return read_as<float16_t>(task, position);
    case ACL_DOUBLE:
      return read_as<double>(task, position);
    case ACL_INT64:
      return read_as<int64_t>(task, position);
    case ACL_INT32:
      return read_as<int32_t>(task, position);
    case ACL_INT16:
      return read_as<int16_t>(task, position);
    case ACL_INT8:
      return read_as<int8_t>(task, position);
    case ACL_UINT8:
      return read_as<uint8_t>(task, position);
    default:
      return read_as<BoolByte>(task, position);
  }
}

// Neighbouring columns of a row in one access. Until they are added they stay one word: as a
// structure they would be taken apart, FP16 and BF16 into as many registers as FP32.
template <int kBytes>
struct WordOf;
template <>
struct WordOf<2> {
  using Type = uint16_t;
};
template <>
struct WordOf<4> {
  using Type = uint32_t;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};
template <class T, int kColumns>
using Word = typename WordOf<kColumns* static_cast<int>(sizeof(T))>::Type;

template <class T, int kColumns>
__device__ Word<T, kColumns> load(const T* from) {
  return *reinterpret_cast<const Word<T, kColumns>*>(from);
}
template <class T, int kColumns>
__device__ void add(const Word<T, kColumns>& word, float (&sums)[kColumns]) {
  T values[kColumns];
  memcpy(values, &word, sizeof(values));
#pragma unroll
  for (int c = 0; c < kColumns; ++c) sums[c] += cuda::widen(values[c]);
}
template <class T, int kColumns>
__device__ void store(T* to, const float (&values)[kColumns]) {
  T out[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) out[c] = cuda::narrow<T>(values[c]);
  Word<T, kColumns> word;
  memcpy(&word, out, sizeof(word));
  __stcs(reinterpret_cast<Word<T, kColumns>*>(to), word);
}

}  // namespace aclgrad::embedding_dense_backward::gpu

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_TASK_CUH_
