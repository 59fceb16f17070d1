// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA runtime that the library uses, on the host: kernels are plain functions that
// run thread by thread, each on a fiber of its own (fibers.h), streams are threads with a queue.
// What a GPU would leave undefined is an error here: a barrier that not all threads of a block
// reach, a shuffle without one of its lanes, memory outside all allocations, an access that is not
// aligned for its type. It sticks to the process, as on a GPU, and cudaGetErrorString() says which
// block and thread it was.
//
// Not here: races between warps of a block and between blocks (they run one after the other), and
// reading of shared memory that nobody wrote.
#ifndef ACLGRAD_TESTS_CUDA_EMULATED_CUDA_RUNTIME_H_
#define ACLGRAD_TESTS_CUDA_EMULATED_CUDA_RUNTIME_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

// The language. A block's fibers share one thread of the host, so its shared memory is that
// thread's.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static thread_local

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3() = default;
  constexpr dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

#define ACLGRAD_EMULATED extern "C" [[gnu::visibility("default")]]

// The toolkit whose interface this is.
#define CUDART_VERSION 13000

// Error codes, by CUDA's numbers.
enum cudaError : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorMisalignedAddress = 716,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
};
using cudaError_t = cudaError;

struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
using cudaHostFn_t = void (*)(void*);

constexpr unsigned long long cudaEnableDefault = 0;
enum cudaDriverEntryPointQueryResult : int;

enum cudaMemcpyKind : int { cudaMemcpyDefault = 4 };
enum cudaMemoryType : int {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3,
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
};
enum cudaDeviceAttr : int {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
struct cudaFuncAttributes {
  size_t sharedSizeBytes;  // 0: arrays that are shared are not counted
  int maxDynamicSharedSizeBytes;
};
enum cudaFuncAttribute : int { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
constexpr unsigned cudaStreamNonBlocking = 1;
constexpr unsigned cudaEventDefault = 0;
constexpr unsigned cudaEventDisableTiming = 2;
constexpr unsigned cudaHostAllocPortable = 1;
constexpr unsigned cudaHostAllocMapped = 2;
struct CUmemPool_st;
using cudaMemPool_t = CUmemPool_st*;
enum cudaMemPoolAttr : int { cudaMemPoolAttrReleaseThreshold = 4 };
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major;
};

ACLGRAD_EMULATED const char* cudaGetErrorName(cudaError_t error);
ACLGRAD_EMULATED const char* cudaGetErrorString(cudaError_t error);
ACLGRAD_EMULATED cudaError_t cudaGetLastError();
ACLGRAD_EMULATED cudaError_t cudaPeekAtLastError();
ACLGRAD_EMULATED cudaError_t cudaGetDeviceCount(int* count);
ACLGRAD_EMULATED cudaError_t cudaGetDevice(int* device);
ACLGRAD_EMULATED cudaError_t cudaSetDevice(int device);
ACLGRAD_EMULATED cudaError_t cudaDeviceReset();
ACLGRAD_EMULATED cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device);
ACLGRAD_EMULATED cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                                    int device);
ACLGRAD_EMULATED cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* kernel);
ACLGRAD_EMULATED cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute,
                                                  int value);
ACLGRAD_EMULATED cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
ACLGRAD_EMULATED cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
ACLGRAD_EMULATED cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
ACLGRAD_EMULATED cudaError_t cudaMalloc(void** memory, size_t bytes);
ACLGRAD_EMULATED cudaError_t cudaFree(void* memory);
ACLGRAD_EMULATED cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream);
ACLGRAD_EMULATED cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
ACLGRAD_EMULATED cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                                     void* value);
ACLGRAD_EMULATED cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                                     void* value);
ACLGRAD_EMULATED cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t kept);
ACLGRAD_EMULATED cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);
ACLGRAD_EMULATED cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
ACLGRAD_EMULATED cudaError_t cudaFreeHost(void* memory);
ACLGRAD_EMULATED cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out,
                                                      const void* pointer);
ACLGRAD_EMULATED cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                                             cudaMemcpyKind kind, cudaStream_t stream);
ACLGRAD_EMULATED cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                                             cudaStream_t stream);
ACLGRAD_EMULATED cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
ACLGRAD_EMULATED cudaError_t cudaStreamDestroy(cudaStream_t stream);
ACLGRAD_EMULATED cudaError_t cudaStreamSynchronize(cudaStream_t stream);
ACLGRAD_EMULATED cudaError_t cudaStreamQuery(cudaStream_t stream);
ACLGRAD_EMULATED cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                                 unsigned flags);
ACLGRAD_EMULATED cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
ACLGRAD_EMULATED cudaError_t cudaEventDestroy(cudaEvent_t event);
ACLGRAD_EMULATED cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
ACLGRAD_EMULATED cudaError_t cudaEventQuery(cudaEvent_t event);
ACLGRAD_EMULATED cudaError_t cudaEventSynchronize(cudaEvent_t event);
ACLGRAD_EMULATED cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end);
ACLGRAD_EMULATED cudaError_t
cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                 unsigned long long flags, cudaDriverEntryPointQueryResult* result);
ACLGRAD_EMULATED cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                                                void* data);

struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

namespace emulated {

// Where the running thread of a kernel is. Null outside kernels.
struct Position {
  uint3 thread, block;
  dim3 block_size, grid_size;
};
[[gnu::visibility("default")]] const Position& here();

[[gnu::visibility("default")]] cudaError_t launch(const cudaLaunchConfig_t& config,
                                                  const void* kernel,
                                                  std::function<void()> thread_of_kernel);
[[gnu::visibility("default")]] void barrier();

enum class Exchange : uint8_t { kSync, kShuffle, kBallot };
// A meeting of the lanes of a warp that `mask` names: the value that lane `source` brought, or the
// lanes that brought a value other than 0.
[[gnu::visibility("default")]] uint64_t meet(unsigned mask, Exchange exchange, uint64_t value,
                                             unsigned source);
// The block's shared memory whose size the launch gave, and copies to it
// (cuda_pipeline_primitives.h).
[[gnu::visibility("default")]] std::byte* shared_memory();
[[gnu::visibility("default")]] void copy_async(void* to, const void* from, size_t bytes);
[[gnu::visibility("default")]] void commit_copies();
[[gnu::visibility("default")]] void wait_copies(size_t pending);
inline constexpr unsigned kWarp = 32;
inline unsigned lane() {
  const Position& at = here();
  return (at.thread.x + at.block_size.x * (at.thread.y + at.block_size.y * at.thread.z)) % kWarp;
}

template <class T>
T shuffle(unsigned mask, T value, unsigned source) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const uint64_t got = meet(mask, Exchange::kShuffle, std::bit_cast<Bits>(value), source);
  return std::bit_cast<T>(static_cast<Bits>(got));
}

}  // namespace emulated

template <class... Parameters, class... Given>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Given&&... given) {
  return emulated::launch(
      *config, reinterpret_cast<const void*>(kernel),
      [kernel, ... values = Parameters(std::forward<Given>(given))] { kernel(values...); });
}

// Where the running thread is. (No macros: cudaLaunchConfig_t has members of such names.)
namespace emulated {
struct Coordinate {
  unsigned (*read)();
  operator unsigned() const { return read(); }
};
struct Coordinates {
  Coordinate x, y, z;
};
template <auto kMember>
inline constexpr Coordinates kCoordinates{{[] { return (here().*kMember).x; }},
                                          {[] { return (here().*kMember).y; }},
                                          {[] { return (here().*kMember).z; }}};
}  // namespace emulated
inline constexpr const emulated::Coordinates& threadIdx =
    emulated::kCoordinates<&emulated::Position::thread>;
inline constexpr const emulated::Coordinates& blockIdx =
    emulated::kCoordinates<&emulated::Position::block>;
inline constexpr const emulated::Coordinates& blockDim =
    emulated::kCoordinates<&emulated::Position::block_size>;
inline constexpr const emulated::Coordinates& gridDim =
    emulated::kCoordinates<&emulated::Position::grid_size>;

inline void __syncthreads() { emulated::barrier(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) {
  emulated::meet(mask, emulated::Exchange::kSync, 0, 0);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return emulated::shuffle(mask, value, static_cast<unsigned>(source) % emulated::kWarp);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return emulated::shuffle(mask, value, emulated::lane() ^ static_cast<unsigned>(bits));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta) {
  const unsigned source = emulated::lane() + delta;
  return emulated::shuffle(mask, value, source < emulated::kWarp ? source : emulated::lane());
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta) {
  const unsigned lane = emulated::lane();
  return emulated::shuffle(mask, value, lane >= delta ? lane - delta : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(
      emulated::meet(mask, emulated::Exchange::kBallot, predicate != 0 ? 1 : 0, 0));
}
inline int __ffs(int value) {
  return value == 0 ? 0 : std::countr_zero(static_cast<unsigned>(value)) + 1;
}
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }

template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, T value) {
  *to = value;
}
template <class T>
T atomicMin(T* at, T value) {
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value < old &&
         !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#endif  // ACLGRAD_TESTS_CUDA_EMULATED_CUDA_RUNTIME_H_
