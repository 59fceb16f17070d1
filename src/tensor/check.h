// SPDX-License-Identifier: Apache-2.0
// The checks of phase one. Each returns 0, or the status after leaving a message that names the
// operator, the parameter, what was expected and what came. Operators call them in the documented
// order: null, handles, dtypes, formats, ranks, shapes, values, sizes; bounds and overlap are done
// by the Launch. An optional operand that was not given passes all of them.
#ifndef ACLGRAD_TENSOR_CHECK_H_
#define ACLGRAD_TENSOR_CHECK_H_

#include <initializer_list>
#include <span>

#include "tensor/operand.h"

namespace aclgrad::check {

extern "C" {
// 161001 when `pointer` is null.
[[gnu::visibility("default")]] Status aclgrad_check_not_null(const char* op, const char* name,
                                                             const void* pointer);

// The operand's dtype is one of `allowed`.
[[gnu::visibility("default")]] Status aclgrad_check_dtype(
    const char* op, const Operand& operand, std::initializer_list<aclDataType> allowed);
// `operand` has the dtype of `other`.
[[gnu::visibility("default")]] Status aclgrad_check_same_dtype(const char* op,
                                                               const Operand& operand,
                                                               const Operand& other);
// Base formats only: private layouts and unknown values are refused.
[[gnu::visibility("default")]] Status aclgrad_check_format(const char* op, const Operand& operand);
// Rank between least and most (at most 8), and no negative dimension.
[[gnu::visibility("default")]] Status aclgrad_check_rank(const char* op, const Operand& operand,
                                                         uint64_t least, uint64_t most);
// The dims equal `expected`; `meaning` completes the message ("one per normalized row").
[[gnu::visibility("default")]] Status aclgrad_check_shape(const char* op, const Operand& operand,
                                                          std::span<const int64_t> expected,
                                                          const char* meaning);
// The dims equal those of `other`.
[[gnu::visibility("default")]] Status aclgrad_check_same_shape(const char* op,
                                                               const Operand& operand,
                                                               const Operand& other);
// The operand has `expected` elements, in any shape.
[[gnu::visibility("default")]] Status aclgrad_check_numel(const char* op, const Operand& operand,
                                                          int64_t expected, const char* meaning);
// The number of elements and the bytes they span fit int64 (reachable extents included). Counted
// as if empty dimensions were 1, so that every product of some of the dims fits too.
[[gnu::visibility("default")]] Status aclgrad_check_sizes(const char* op, const Operand& operand);
}

inline constexpr auto& not_null = aclgrad_check_not_null;
inline constexpr auto& dtype = aclgrad_check_dtype;
inline constexpr auto& same_dtype = aclgrad_check_same_dtype;
inline constexpr auto& format = aclgrad_check_format;
inline constexpr auto& rank = aclgrad_check_rank;
inline constexpr auto& shape = aclgrad_check_shape;
inline constexpr auto& same_shape = aclgrad_check_same_shape;
inline constexpr auto& numel = aclgrad_check_numel;
inline constexpr auto& sizes = aclgrad_check_sizes;

}  // namespace aclgrad::check

#endif  // ACLGRAD_TENSOR_CHECK_H_
