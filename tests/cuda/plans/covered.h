// SPDX-License-Identifier: Apache-2.0
// What every launch must keep to, and a list of numbers of which each is to be met once.
#ifndef ACLGRAD_TESTS_CUDA_PLANS_COVERED_H_
#define ACLGRAD_TESTS_CUDA_PLANS_COVERED_H_

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cuda/geometry.h"

namespace aclgrad::test {

// Of work in `pieces` pieces, of which a block takes `at_once` at a time.
inline void expect_launch(const cuda::Geometry& launch, int64_t pieces, int64_t at_once,
                          const std::string& name) {
  constexpr int64_t kMostOfGpu = 0x7FFFFFFF;
  EXPECT_LE(launch.blocks, kMostOfGpu) << name;
  EXPECT_EQ(launch.threads % cuda::kWarpLanes, 0u) << name;
  EXPECT_LE(launch.threads, 1024u) << name;
  EXPECT_GT(launch.threads, 0u) << name;
  ASSERT_GT(at_once, 0) << name;
  if (pieces == 0) {
    EXPECT_EQ(launch.blocks, 0) << name;
    return;
  }
  EXPECT_GT(launch.blocks, 0) << name;
  // No block is without a piece, and each comes to an end before its numbers overflow.
  EXPECT_GT(pieces, 0) << name;
  EXPECT_LT((launch.blocks - 1) * at_once, pieces) << name;
  EXPECT_LE(pieces, INT64_MAX - launch.blocks * at_once) << name;
  if (launch.blocks < cuda::kMostBlocks) {
    EXPECT_GE(launch.blocks * at_once, pieces) << name;
  }
}

class Covered {
 public:
  explicit Covered(int64_t count) : times_(static_cast<size_t>(count)) {}
  void take(int64_t number) {
    const bool inside = number >= 0 && number < static_cast<int64_t>(times_.size());
    if (inside) {
      ++times_[static_cast<size_t>(number)];
    } else {
      ++outside_;
    }
  }
  // Says which number is missing or met again.
  void expect_each_once(const std::string& name) const {
    EXPECT_EQ(outside_, 0) << name;
    for (size_t i = 0; i < times_.size(); ++i) {
      if (times_[i] == 1) continue;
      ADD_FAILURE() << name << ": " << i << " is met " << times_[i] << " times";
      return;
    }
  }

 private:
  std::vector<int> times_;
  int outside_ = 0;
};

// The first numbers of "16384x50304x768-uniform".
template <size_t kCount>
std::array<int64_t, kCount> numbers_of(const std::string& shape) {
  std::array<int64_t, kCount> numbers{};
  const char* at = shape.c_str();
  for (int64_t& number : numbers) {
    char* end = nullptr;
    number = std::strtoll(at, &end, 10);
    at = *end == 'x' ? end + 1 : end;
  }
  return numbers;
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_CUDA_PLANS_COVERED_H_
