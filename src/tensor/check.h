// SPDX-License-Identifier: Apache-2.0
// The checks of phase one. Each returns 0, or the status after leaving a message that names the
// operator, the parameter, what was expected and what came. Operators call them in the documented
// order: null, handles, dtypes, formats, ranks, shapes, values, sizes; bounds and overlap are done
// by the Launch.
#ifndef ACLGRAD_TENSOR_CHECK_H_
#define ACLGRAD_TENSOR_CHECK_H_

#include <initializer_list>
#include <span>

#include "tensor/operand.h"

namespace aclgrad::check {

// 161001 when `pointer` is null.
Status not_null(const char* op, const char* name, const void* pointer);

// The operand's dtype is one of `allowed`.
Status dtype(const char* op, const Operand& operand, std::initializer_list<aclDataType> allowed);
// `operand` has the dtype of `other`.
Status same_dtype(const char* op, const Operand& operand, const Operand& other);
// Base formats only: private layouts and unknown values are refused.
Status format(const char* op, const Operand& operand);
// Rank between least and most (at most 8), and no negative dimension.
Status rank(const char* op, const Operand& operand, uint64_t least, uint64_t most);
// The dims equal `expected`; `meaning` completes the message ("one per normalized row").
Status shape(const char* op, const Operand& operand, std::span<const int64_t> expected,
             const char* meaning);
// The dims equal those of `other`.
Status same_shape(const char* op, const Operand& operand, const Operand& other);
// The operand has `expected` elements, in any shape.
Status numel(const char* op, const Operand& operand, int64_t expected, const char* meaning);
// The number of elements and the bytes they span fit int64 (reachable extents included).
Status sizes(const char* op, const Operand& operand);

}  // namespace aclgrad::check

#endif  // ACLGRAD_TENSOR_CHECK_H_
