// SPDX-License-Identifier: Apache-2.0
// Overflow-checked arithmetic on sizes: a product that leaves int64 is reported, never wrapped.
#ifndef ACLGRAD_BASE_CHECKED_H_
#define ACLGRAD_BASE_CHECKED_H_

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace aclgrad {

inline std::optional<int64_t> checked_product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

inline std::optional<int64_t> checked_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_CHECKED_H_
