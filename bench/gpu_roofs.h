// SPDX-License-Identifier: Apache-2.0
// The roofs of a GPU: kernels that do nothing but copy, read and add, sixteen bytes an access, of
// as many bytes as the problem has, in as many copies.
#ifndef ACLGRAD_BENCH_GPU_ROOFS_H_
#define ACLGRAD_BENCH_GPU_ROOFS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bench/roofs.h"
#include "kernels/cuda/queue.h"

namespace aclgrad::bench {

// Where the device in use is a GPU.
std::unique_ptr<Roofs> make_gpu_roofs(int64_t bytes, size_t copies);
int64_t bytes_beyond_gpu_caches();
Machine this_gpu();

// The kernels. Bytes are multiples of kRoofUnit, addresses of sixteen.
inline constexpr int64_t kRoofUnit = 16;
CudaAnswer launch_copy(const void* from, void* to, int64_t bytes, const CudaQueue& queue);
CudaAnswer launch_read(const void* from, int64_t bytes, void* sink, const CudaQueue& queue);
CudaAnswer launch_add(const void* from, const void* other, void* to, int64_t bytes,
                      const CudaQueue& queue);
// `blocks` blocks of threads that each do `rounds` rounds; what a block does in a round.
CudaAnswer launch_multiply_adds(int64_t blocks, int rounds, void* sink, const CudaQueue& queue);
double flops_of_round();
const char* gpu_name(int device, char (&name)[256]);

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_GPU_ROOFS_H_
