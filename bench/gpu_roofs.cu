// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu_roofs.h"

#include <cstdio>

#include "base/checked.h"
#include "kernels/cuda/launch.cuh"

namespace aclgrad::bench {
namespace {

constexpr unsigned kThreads = 256;
// Accesses of a thread, all under way together: 64 bytes a thread, 128 KiB of a multiprocessor's
// 2048 threads, where 40 KiB would keep 4.8 TB/s busy over 1 us.
constexpr int kAccesses = 4;
constexpr int64_t kBlockUnits = int64_t{kThreads} * kAccesses;

constexpr int kMultiplyChains = 8;  // FP32 has a latency of four cycles

int64_t blocks_of(int64_t bytes) { return ceil_div(bytes / kRoofUnit, kBlockUnits); }

__device__ int64_t unit_at(int64_t block, int access) {
  return block * kBlockUnits + access * int64_t{kThreads} + cuda::thread_index();
}

__global__ void __launch_bounds__(kThreads)
    copy_units(const uint4* from, uint4* to, int64_t count) {
  for (int64_t block = cuda::block_index(); block * kBlockUnits < count;
       block += cuda::block_count()) {
    uint4 values[kAccesses];
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      if (unit_at(block, i) < count) values[i] = from[unit_at(block, i)];
    }
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      if (unit_at(block, i) < count) to[unit_at(block, i)] = values[i];
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    read_units(const uint4* from, int64_t count, unsigned* sink) {
  unsigned bits = 0;
  for (int64_t block = cuda::block_index(); block * kBlockUnits < count;
       block += cuda::block_count()) {
    uint4 values[kAccesses] = {};
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      if (unit_at(block, i) < count) values[i] = from[unit_at(block, i)];
    }
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      bits |= values[i].x | values[i].y | values[i].z | values[i].w;
    }
  }
  if (bits == 0xFFFFFFFFu) *sink = bits;  // never: what is read is zeros
}

__global__ void __launch_bounds__(kThreads)
    add_units(const uint4* from, const uint4* other, uint4* to, int64_t count) {
  for (int64_t block = cuda::block_index(); block * kBlockUnits < count;
       block += cuda::block_count()) {
    uint4 a[kAccesses];
    uint4 b[kAccesses];
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      if (unit_at(block, i) >= count) continue;
      a[i] = from[unit_at(block, i)];
      b[i] = other[unit_at(block, i)];
    }
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      if (unit_at(block, i) >= count) continue;
      to[unit_at(block, i)] = {a[i].x + b[i].x, a[i].y + b[i].y, a[i].z + b[i].z, a[i].w + b[i].w};
    }
  }
}

__global__ void __launch_bounds__(kThreads) multiply_add(int rounds, float* sink) {
  float chain[kMultiplyChains];
  for (int i = 0; i < kMultiplyChains; ++i) {
    chain[i] = 1.0f + 0.1f * static_cast<float>(i + cuda::thread_index());
  }
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (float& each : chain) each = fmaf(each, 0.999f, 0.001f);
  }
  float sum = 0.0f;
  for (const float each : chain) sum += each;
  if (sum == -1.0f) *sink = sum;  // never
}

}  // namespace

CudaAnswer launch_copy(const void* from, void* to, int64_t bytes, const CudaQueue& queue) {
  return cuda::launch(queue, {cuda::blocks_for(blocks_of(bytes)), kThreads}, copy_units,
                      static_cast<const uint4*>(from), static_cast<uint4*>(to), bytes / kRoofUnit);
}
CudaAnswer launch_read(const void* from, int64_t bytes, void* sink, const CudaQueue& queue) {
  return cuda::launch(queue, {cuda::blocks_for(blocks_of(bytes)), kThreads}, read_units,
                      static_cast<const uint4*>(from), bytes / kRoofUnit,
                      static_cast<unsigned*>(sink));
}
CudaAnswer launch_add(const void* from, const void* other, void* to, int64_t bytes,
                      const CudaQueue& queue) {
  return cuda::launch(queue, {cuda::blocks_for(blocks_of(bytes)), kThreads}, add_units,
                      static_cast<const uint4*>(from), static_cast<const uint4*>(other),
                      static_cast<uint4*>(to), bytes / kRoofUnit);
}
CudaAnswer launch_multiply_adds(int64_t blocks, int rounds, void* sink, const CudaQueue& queue) {
  return cuda::launch(queue, {blocks, kThreads}, multiply_add, rounds, static_cast<float*>(sink));
}
double flops_of_round() { return 2.0 * kMultiplyChains * kThreads; }

const char* gpu_name(int device, char (&name)[256]) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return "unknown GPU";
  std::snprintf(name, sizeof name, "%s", properties.name);
  return name;
}

}  // namespace aclgrad::bench
