// SPDX-License-Identifier: Apache-2.0
// What tests of operators on [B, N, S1, S2] with a mask share: the choices a problem has, masks of
// random bytes, and rows in plain memory for outputs larger than a cache.
#ifndef ACLGRAD_TESTS_SUPPORT_ATTENTION_H_
#define ACLGRAD_TESTS_SUPPORT_ATTENTION_H_

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/cache.h"
#include "support/arrangement.h"
#include "support/compare.h"
#include "support/device.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {

// The defaults are the plain case.
struct AttentionOptions {
  aclDataType dtype = ACL_FLOAT;
  double scale = 0.125;
  bool over_batches = true, over_heads = true;  // the mask repeats itself
  Arrangement in = Arrangement::kContiguous;
  Arrangement mask = Arrangement::kContiguous;
  Arrangement out = Arrangement::kContiguous;
};

inline AttentionOptions all_of(aclDataType dtype) {
  AttentionOptions options;
  options.dtype = dtype;
  return options;
}

inline Dims mask_dims(const Dims& dims, const AttentionOptions& options) {
  return {options.over_batches ? std::min<int64_t>(dims[0], 1) : dims[0],
          options.over_heads ? std::min<int64_t>(dims[1], 1) : dims[1], dims[2], dims[3]};
}

// Any byte but 0 is true; about half of them are 0.
inline void fill_mask(Tensor& mask, uint64_t seed) {
  std::vector<double> bytes = integer_values(mask.numel(), seed, -300, 255);
  for (double& byte : bytes) byte = std::max(byte, 0.0);
  mask.fill(bytes);
}

// Rows that lie dense are read in place, whatever the strides before them.
inline bool rows_are_dense(Arrangement arrangement) {
  return arrangement != Arrangement::kTransposed && arrangement != Arrangement::kReversed &&
         arrangement != Arrangement::kInnerStrided;
}

// fn(dims, options) with every form of mask: repeated or not, in any arrangement.
template <class Fn>
void for_each_form_of_mask(Fn&& fn) {
  constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
  for (const bool over_batches : {false, true}) {
    for (const bool over_heads : {false, true}) {
      for (const Arrangement mask : kInputArrangements) {
        for (const Dims& dims : {Dims{3, 4, 5, 6}, Dims{2, 3, 7, 33}, Dims{3, 40, 1, 16},
                                 Dims{5, 30, 1, 300}, Dims{2, 9, 30, 160}}) {
          AttentionOptions options;
          options.dtype = kFloats[dims.back() % 3];
          options.over_batches = over_batches;
          options.over_heads = over_heads;
          options.mask = mask;
          SCOPED_TRACE(std::string("mask ") + arrangement_name(mask) + " " +
                       std::to_string(over_batches) + std::to_string(over_heads) + ", S2 " +
                       std::to_string(dims.back()));
          fn(dims, options);
        }
      }
    }
  }
}

// Rows of `cols` elements in plain memory: a Tensor's guards would take seconds at this size.
struct PlainRows {
  PlainRows(int64_t count, int64_t length, aclDataType type, int64_t skipped, uint64_t seed)
      : cols(length),
        dtype(type),
        lead(skipped),
        elements(static_cast<size_t>(count * length + 2 * skipped)),
        memory(bytes()) {
    Tensor pattern({65521}, type);
    type == ACL_BOOL ? pattern.fill_integers(seed, 0, 1) : pattern.fill_normal(seed);
    content = pattern.bits();
    while (content.size() < bytes()) {
      const size_t more = std::min(content.size(), bytes() - content.size());
      content.resize(content.size() + more);
      std::memcpy(&content[content.size() - more], content.data(), more);
    }
    content.resize(bytes());
    require(aclrtMemcpy(memory.get(), bytes(), content.data(), bytes(), ACL_MEMCPY_HOST_TO_DEVICE),
            "aclrtMemcpy");
  }
  size_t bytes() const { return elements * dtype_size(dtype); }
  // [1, 1, count, cols] from row `first` on.
  aclTensor* slice(int64_t first, int64_t count) const {
    const int64_t dims[] = {1, 1, count, cols};
    const int64_t strides[] = {count * cols, count * cols, cols, 1};
    return aclCreateTensor(dims, 4, dtype, strides, lead + first * cols, ACL_FORMAT_ND, nullptr, 0,
                           memory.get());
  }
  std::vector<uint8_t> now() const {
    std::vector<uint8_t> out(bytes());
    require(aclrtMemcpy(out.data(), bytes(), memory.get(), bytes(), ACL_MEMCPY_DEVICE_TO_HOST),
            "aclrtMemcpy");
    return out;
  }
  // The elements before and behind the rows are what they were.
  bool guards_intact(const std::vector<uint8_t>& image) const {
    const auto guard = static_cast<std::ptrdiff_t>(guard_bytes());
    return std::equal(image.begin(), image.begin() + guard, content.begin()) &&
           std::equal(image.end() - guard, image.end(), content.end() - guard);
  }
  // Of now().
  std::vector<uint8_t> rows_of(const std::vector<uint8_t>& image, int64_t first,
                               int64_t count) const {
    const auto row_bytes = static_cast<std::ptrdiff_t>(dtype_size(dtype)) * cols;
    const auto at = image.begin() + static_cast<std::ptrdiff_t>(guard_bytes()) + first * row_bytes;
    return {at, at + count * row_bytes};
  }

  int64_t cols;
  aclDataType dtype;
  int64_t lead;  // elements before and behind
  size_t elements;
  DeviceMemory memory;
  std::vector<uint8_t> content;  // at first

 private:
  size_t guard_bytes() const { return static_cast<size_t>(lead) * dtype_size(dtype); }
};

// How many rows do not fit the cache, or fill 64 MiB.
inline int64_t rows_beyond_the_cache(int64_t cols, aclDataType dtype) {
  const auto row_bytes = static_cast<int64_t>(dtype_size(dtype)) * cols;
  int64_t count = 100;
  while (!outputs_should_stream(count * row_bytes) && count * row_bytes < (64 << 20)) ++count;
  return count;
}

// run(out, first, count) -> Outcome computes `count` rows from row `first` on to the first rows of
// `out`. All of out's rows have the bits that a few rows at a time have, and nothing else is
// touched; returns what `out` then holds.
template <class Run>
std::vector<uint8_t> expect_bits_of_rows(const PlainRows& out, int64_t count, Run&& run) {
  constexpr int64_t kFew = 50;
  const Outcome outcome = run(out, int64_t{0}, count);
  EXPECT_TRUE(outcome.ok()) << outcome;
  std::vector<uint8_t> bits = out.now();
  EXPECT_TRUE(out.guards_intact(bits));
  const PlainRows few(kFew, out.cols, out.dtype, 0, 5);
  for (const int64_t first : {int64_t{0}, count / 2 + 1, count - kFew}) {
    EXPECT_TRUE(run(few, first, kFew).ok());
    expect_same_bits("rows", out.rows_of(bits, first, kFew), few.now());
  }
  return bits;
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_ATTENTION_H_
