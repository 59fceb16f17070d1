// SPDX-License-Identifier: Apache-2.0
// Overflow-checked arithmetic on sizes: a product that leaves int64 is reported, or ends at the
// largest int64, and is never wrapped.
#ifndef ACLGRAD_BASE_CHECKED_H_
#define ACLGRAD_BASE_CHECKED_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>

namespace aclgrad {

inline std::optional<int64_t> checked_product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

// More than any count of elements or bytes that was checked.
inline constexpr int64_t kTooMany = std::numeric_limits<int64_t>::max();

// The product of sizes of 0 and more: 0 where one of them is 0, however large the others are (the
// dims of an empty tensor), and kTooMany where it leaves int64.
inline int64_t saturating_product(std::span<const int64_t> factors) {
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
  }
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return kTooMany;
  }
  return product;
}
inline int64_t saturating_product(std::initializer_list<int64_t> factors) {
  return saturating_product(std::span(factors.begin(), factors.size()));
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
