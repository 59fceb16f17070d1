// SPDX-License-Identifier: Apache-2.0
// The emulated runtime: kernels compute what a GPU would, and every planted misuse is caught and
// says which thread it was.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda_runtime.h"

namespace {

class EmulatedCuda : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    ASSERT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  }

  template <class... Parameters, class... Given>
  cudaError_t launch(dim3 grid, dim3 block, void (*kernel)(Parameters...), Given&&... given) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream_;
    return cudaLaunchKernelEx(&config, kernel, std::forward<Given>(given)...);
  }
  template <class T>
  T* device(size_t count) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, count * sizeof(T)), cudaSuccess);
    return static_cast<T*>(memory);
  }
  template <class T>
  std::vector<T> read(const T* from, size_t count) {
    std::vector<T> out(count);
    const size_t bytes = count * sizeof(T);
    EXPECT_EQ(cudaMemcpyAsync(out.data(), from, bytes, cudaMemcpyDefault, stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return out;
  }
  // The stream's error, with all of these in its text.
  void expect_fault(cudaError_t expected, std::initializer_list<std::string> parts) {
    const cudaError_t error = cudaStreamSynchronize(stream_);
    EXPECT_EQ(error, expected);
    const std::string text = cudaGetErrorString(error);
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    }
    // It sticks.
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 4), expected);
  }

  cudaStream_t stream_ = nullptr;
};

__global__ void write_numbers(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

TEST_F(EmulatedCuda, EveryThreadRunsOnce) {
  unsigned* const out = device<unsigned>(24 * 60);
  ASSERT_EQ(launch({2, 3, 4}, {3, 4, 5}, write_numbers, out), cudaSuccess);
  const std::vector<unsigned> got = read(out, 24 * 60);
  for (unsigned i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], i / 60 * 1000 + i % 60);
}

// Two rounds, so that a barrier that lets threads through early mixes them up.
__global__ void reverse_twice(const int* in, int* out, int rounds) {
  __shared__ int values[256];
  const auto me = static_cast<int>(threadIdx.x);
  const auto count = static_cast<int>(blockDim.x);
  values[me] = in[me];
  for (int i = 0; i < rounds; ++i) {
    __syncthreads();
    const int other = values[count - 1 - me];
    __syncthreads();
    values[me] = other;
  }
  out[me] = values[me];
}

TEST_F(EmulatedCuda, SharedMemoryAndBarriers) {
  int* const in = device<int>(200);
  int* const out = device<int>(200);
  std::vector<int> numbers(200);
  for (int i = 0; i < 200; ++i) numbers[static_cast<size_t>(i)] = i;
  ASSERT_EQ(cudaMemcpyAsync(in, numbers.data(), 800, cudaMemcpyDefault, stream_), cudaSuccess);
  ASSERT_EQ(launch(1, 200, reverse_twice, in, out, 2), cudaSuccess);
  EXPECT_EQ(read(out, 200), numbers);
  ASSERT_EQ(launch(1, 200, reverse_twice, in, out, 3), cudaSuccess);
  EXPECT_EQ(read(out, 200), std::vector<int>(numbers.rbegin(), numbers.rend()));
}

__global__ void exchange(int* out) {
  const auto me = static_cast<int>(threadIdx.x);
  int* const mine = out + 6 * me;
  mine[0] = __shfl_xor_sync(0xFFFFFFFFu, me, 5);
  mine[1] = __shfl_down_sync(0xFFFFFFFFu, me, 3);
  mine[2] = __shfl_up_sync(0xFFFFFFFFu, me, 3);
  mine[3] = __shfl_sync(0xFFFFFFFFu, me, 7);
  mine[4] = static_cast<int>(__ballot_sync(0xFFFFFFFFu, me % 3 == 0) & 0xFFFF);
  // Half of the warp by itself.
  const unsigned half = me % 32 < 16 ? 0x0000FFFFu : 0xFFFF0000u;
  mine[5] = static_cast<int>(__shfl_xor_sync(half, static_cast<double>(me), 1));
}

TEST_F(EmulatedCuda, Shuffles) {
  int* const out = device<int>(64 * 6);
  ASSERT_EQ(launch(1, 64, exchange, out), cudaSuccess);
  const std::vector<int> got = read(out, 64 * 6);
  for (int i = 0; i < 64; ++i) {
    const int* const mine = &got[static_cast<size_t>(6 * i)];
    const int lane = i % 32;
    EXPECT_EQ(mine[0], i ^ 5);
    EXPECT_EQ(mine[1], lane < 29 ? i + 3 : i);
    EXPECT_EQ(mine[2], lane >= 3 ? i - 3 : i);
    EXPECT_EQ(mine[3], i - lane + 7);
    int ballot = 0;
    for (int other = 0; other < 16; ++other) ballot |= ((i - lane + other) % 3 == 0) << other;
    EXPECT_EQ(mine[4], ballot);
    EXPECT_EQ(mine[5], i ^ 1);
  }
}

__global__ void barrier_of_some() {
  if (threadIdx.x < 40) __syncthreads();
}

TEST_F(EmulatedCuda, ABarrierThatNotAllThreadsReach) {
  ASSERT_EQ(launch(2, 64, barrier_of_some), cudaSuccess);
  expect_fault(
      cudaErrorLaunchFailure,
      {"block (0,0,0)", "thread (0,0,0) waits at __syncthreads for thread (40,0,0)", "has ended"});
}

__global__ void shuffle_of_some(int* out) {
  if (threadIdx.x != 9) out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1, 1);
}

TEST_F(EmulatedCuda, AShuffleWithoutOneOfItsLanes) {
  int* const out = device<int>(32);
  ASSERT_EQ(launch(1, 32, shuffle_of_some, out), cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, {"waits at a shuffle for thread (9,0,0), which has ended"});
}

__global__ void shuffle_against_barrier(int* out) {
  if (threadIdx.x == 3) __syncthreads();
  out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, 1, 1);
}

TEST_F(EmulatedCuda, ABarrierAgainstAShuffle) {
  int* const out = device<int>(32);
  ASSERT_EQ(launch(1, 32, shuffle_against_barrier, out), cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, {"which waits at __syncthreads"});
}

__global__ void shuffle_outside_mask(int* out) {
  out[threadIdx.x] = __shfl_xor_sync(0x0000FFFFu, 1, 1);
}

TEST_F(EmulatedCuda, ALaneThatIsNotInItsMask) {
  int* const out = device<int>(32);
  ASSERT_EQ(launch(1, 32, shuffle_outside_mask, out), cudaSuccess);
  expect_fault(cudaErrorLaunchFailure, {"thread (16,0,0)", "lane 16 is not in the mask"});
}

__global__ void write_at(int* out, int64_t at) {
  if (blockIdx.x == 1 && threadIdx.x == 2) out[at] = 1;
}

TEST_F(EmulatedCuda, WritingBehindAnAllocation) {
  int* const out = device<int>(64);  // a multiple of what allocations align to
  ASSERT_EQ(launch(2, 4, write_at, out, int64_t{63}), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  ASSERT_EQ(launch(2, 4, write_at, out, int64_t{64}), cudaSuccess);
  expect_fault(cudaErrorIllegalAddress,
               {"block (1,0,0) thread (2,0,0)", "which is in no allocation"});
}

TEST_F(EmulatedCuda, WritingToWhatWasFreed) {
  int* const out = device<int>(64);
  ASSERT_EQ(cudaFree(out), cudaSuccess);
  ASSERT_EQ(launch(2, 4, write_at, out, int64_t{0}), cudaSuccess);
  expect_fault(cudaErrorIllegalAddress, {"block (1,0,0) thread (2,0,0)"});
}

__global__ void write_two_at(unsigned char* out, int64_t at) {
  *reinterpret_cast<uint2*>(out + at) = uint2{blockIdx.x, threadIdx.x};
}

TEST_F(EmulatedCuda, AnAccessThatIsNotAligned) {
  auto* const out = device<unsigned char>(64);
  ASSERT_EQ(launch(1, 1, write_two_at, out, int64_t{8}), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  ASSERT_EQ(launch(1, 1, write_two_at, out, int64_t{4}), cudaSuccess);
  expect_fault(cudaErrorMisalignedAddress, {"block (0,0,0) thread (0,0,0)", "not aligned"});
}

__global__ void add_garbage(const float* in, float* out) { *out = *in + 1.0f; }

TEST_F(EmulatedCuda, FreshMemoryIsNoZero) {
  float* const in = device<float>(1);
  float* const out = device<float>(1);
  ASSERT_EQ(launch(1, 1, add_garbage, in, out), cudaSuccess);
  EXPECT_NE(read(out, 1)[0], 1.0f);
}

TEST_F(EmulatedCuda, LaunchesThatCudaRefuses) {
  EXPECT_EQ(launch(1, 1025, barrier_of_some), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(0, 32, barrier_of_some), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch({1, 65536}, 32, barrier_of_some), cudaErrorInvalidConfiguration);
}

TEST_F(EmulatedCuda, CopiesStayInTheirAllocations) {
  int* const out = device<int>(4);
  int local[8] = {};
  EXPECT_EQ(cudaMemcpyAsync(out, local, 32, cudaMemcpyDefault, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(out, local, 16, cudaMemcpyDefault, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(local, 0, 16, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

struct Step {
  std::vector<int>* order;
  int number;
};
void take_step(void* data) {
  const auto* const step = static_cast<const Step*>(data);
  step->order->push_back(step->number);
}

TEST_F(EmulatedCuda, StreamsWaitForEvents) {
  cudaStream_t second = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  std::vector<int> order;
  Step first{&order, 1};
  Step last{&order, 2};
  ASSERT_EQ(cudaLaunchHostFunc(stream_, take_step, &first), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(second, take_step, &last), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(second), cudaSuccess);
}

}  // namespace
