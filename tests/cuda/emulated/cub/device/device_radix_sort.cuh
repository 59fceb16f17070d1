// SPDX-License-Identifier: Apache-2.0
// The part of cub that the library uses: its radix sort of pairs, as a kernel of one thread in the
// order of the stream. Which of the two buffers has the result depends on the count and on the
// bits, as it does with cub.
#ifndef ACLGRAD_TESTS_CUDA_EMULATED_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_
#define ACLGRAD_TESTS_CUDA_EMULATED_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cuda_runtime.h"

namespace cub {

template <class T>
struct DoubleBuffer {
  T* d_buffers[2];
  int selector = 0;

  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() const { return d_buffers[selector]; }
  T* Alternate() const { return d_buffers[selector ^ 1]; }
};

namespace emulated {

constexpr int kDigitBits = 8;
// Up to here a block sorts alone, from one buffer to the other.
constexpr uint64_t kOneTile = 2048;
constexpr size_t kScratchBytes = 1000;

constexpr int passes_of(uint64_t count, int bits) {
  return count <= kOneTile ? 1 : (bits + kDigitBits - 1) / kDigitBits;
}

template <class Key>
struct Digit {
  int first, end;
  size_t operator()(Key key) const {
    return static_cast<size_t>(key >> first & ((Key{1} << (end - first)) - 1));
  }
};

template <class Key, class Value>
void move_pairs(const Key* keys, const Value* values, Key* to_keys, Value* to_values,
                uint64_t count, Digit<Key> digit) {
  std::array<uint64_t, size_t{1} << kDigitBits> places{};
  for (uint64_t i = 0; i < count; ++i) ++places[digit(keys[i])];
  uint64_t place = 0;
  for (uint64_t& each : places) place += std::exchange(each, place);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t to = places[digit(keys[i])]++;
    to_keys[to] = keys[i];
    to_values[to] = values[i];
  }
}

template <class Key, class Value>
struct Buffers {
  Key* keys[2];
  Value* values[2];
};

template <class Key, class Value>
void sort_pairs(Buffers<Key, Value> buffers, uint64_t count, int begin_bit, int end_bit,
                void* scratch) {
  std::memset(scratch, 0xA5, kScratchBytes);
  int from = 0;
  for (int bit = begin_bit; bit < end_bit; bit += kDigitBits, from ^= 1) {
    const int end = bit + kDigitBits < end_bit ? bit + kDigitBits : end_bit;
    move_pairs(buffers.keys[from], buffers.values[from], buffers.keys[from ^ 1],
               buffers.values[from ^ 1], count, Digit<Key>{bit, end});
  }
  const int result = passes_of(count, end_bit - begin_bit) % 2;
  if (from == result) return;
  std::memcpy(buffers.keys[result], buffers.keys[from], count * sizeof(Key));
  std::memcpy(buffers.values[result], buffers.values[from], count * sizeof(Value));
}

}  // namespace emulated

struct DeviceRadixSort {
  template <class Key, class Value, class Count>
  static cudaError_t SortPairs(void* scratch, size_t& scratch_bytes, DoubleBuffer<Key>& keys,
                               DoubleBuffer<Value>& values, Count count, int begin_bit, int end_bit,
                               cudaStream_t stream) {
    if (scratch == nullptr) {
      scratch_bytes = emulated::kScratchBytes;
      return cudaSuccess;
    }
    if (scratch_bytes < emulated::kScratchBytes) return cudaErrorInvalidValue;
    const emulated::Buffers<Key, Value> buffers{{keys.Current(), keys.Alternate()},
                                                {values.Current(), values.Alternate()}};
    const auto pairs = static_cast<uint64_t>(count);
    cudaLaunchConfig_t config{};
    config.stream = stream;
    const cudaError_t error = cudaLaunchKernelEx(&config, emulated::sort_pairs<Key, Value>, buffers,
                                                 pairs, begin_bit, end_bit, scratch);
    const int moved = emulated::passes_of(pairs, end_bit - begin_bit) % 2;
    keys.selector ^= moved;
    values.selector ^= moved;
    return error;
  }
};

}  // namespace cub

#endif  // ACLGRAD_TESTS_CUDA_EMULATED_CUB_DEVICE_DEVICE_RADIX_SORT_CUH_
