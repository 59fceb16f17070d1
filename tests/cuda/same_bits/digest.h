// SPDX-License-Identifier: Apache-2.0
// One line for each case of an operator: its name and a digest of the bits of its output.
#ifndef ACLGRAD_TESTS_CUDA_SAME_BITS_DIGEST_H_
#define ACLGRAD_TESTS_CUDA_SAME_BITS_DIGEST_H_

#include <cinttypes>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "base/dtype.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {

inline constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

// FNV-1a.
inline uint64_t digest(const Tensor& tensor) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const uint8_t byte : tensor.bits()) hash = (hash ^ byte) * 0x100000001B3u;
  return hash;
}

inline void print_digest(const std::string& name, const Outcome& outcome, const Tensor& output) {
  if (!outcome.ok()) throw std::runtime_error(name + ": " + outcome.message);
  std::printf("%s %016" PRIx64 "\n", name.c_str(), digest(output));
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_CUDA_SAME_BITS_DIGEST_H_
