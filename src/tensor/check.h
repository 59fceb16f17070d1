// SPDX-License-Identifier: Apache-2.0
// The checks of phase one. Each returns 0, or the status after leaving a message that names the
// operator, the parameter, what was expected and what came. Operators call them in the documented
// order: null, handles, dtypes, formats, ranks, shapes, values, sizes; bounds and overlap are done
// by the Launch. An optional operand that was not given passes all of them.
#ifndef ACLGRAD_TENSOR_CHECK_H_
#define ACLGRAD_TENSOR_CHECK_H_

#include <initializer_list>
#include <span>

#include "base/checked.h"
#include "tensor/operand.h"

namespace aclgrad::check {

// The bodies that an accepted operand never reaches, and the checks that are more than a few
// instructions.
extern "C" {
[[gnu::visibility("default")]] Status aclgrad_refuse_dtype(
    const char* op, const Operand& operand, std::initializer_list<aclDataType> allowed);
[[gnu::visibility("default")]] Status aclgrad_refuse_format(const char* op, const Operand& operand);
[[gnu::visibility("default")]] Status aclgrad_refuse_rank(const char* op, const Operand& operand,
                                                          uint64_t least, uint64_t most);
[[gnu::visibility("default")]] Status aclgrad_refuse_null(const char* op, const char* name);
[[gnu::visibility("default")]] Status aclgrad_refuse_other_dtype(const char* op,
                                                                 const Operand& operand,
                                                                 const Operand& other);
[[gnu::visibility("default")]] Status aclgrad_refuse_other_shape(const char* op,
                                                                 const Operand& operand,
                                                                 const Operand& other);
// The dims equal `expected`; `meaning` completes the message ("one per normalized row").
[[gnu::visibility("default")]] Status aclgrad_check_shape(const char* op, const Operand& operand,
                                                          std::span<const int64_t> expected,
                                                          const char* meaning);
// The operand has `expected` elements, in any shape; kTooMany is more than any tensor has.
// `meaning` and the shape of `of` complete the message ("one per normalized row of input"
// "[8,16]").
[[gnu::visibility("default")]] Status aclgrad_check_numel(const char* op, const Operand& operand,
                                                          int64_t expected, const char* meaning,
                                                          const Operand& of);
// The number of elements and the bytes they span fit int64 (reachable extents included). The other
// dimensions of an empty tensor may be anything: products of some of its dims need not fit.
[[gnu::visibility("default")]] Status aclgrad_check_sizes(const char* op, const Operand& operand);
}

// Of an operand whose description is all there.
Facts facts_of(const Operand& operand);

inline constexpr auto& shape = aclgrad_check_shape;

// 161001 when `pointer` is null.
inline Status not_null(const char* op, const char* name, const void* pointer) {
  return pointer != nullptr ? kOk : aclgrad_refuse_null(op, name);
}

// `operand` has the dtype of `other`.
inline Status same_dtype(const char* op, const Operand& operand, const Operand& other) {
  if (!operand.given() || !other.given() || operand.dtype == other.dtype) return kOk;
  return aclgrad_refuse_other_dtype(op, operand, other);
}

// The dims equal those of `other`.
inline Status same_shape(const char* op, const Operand& operand, const Operand& other) {
  if (!operand.given() || !other.given()) return kOk;
  bool same = operand.rank == other.rank;
  for (int i = 0; same && i < operand.kept_dims(); ++i) same = operand.dim(i) == other.dim(i);
  return same ? kOk : aclgrad_refuse_other_shape(op, operand, other);
}

inline Status numel(const char* op, const Operand& operand, int64_t expected, const char* meaning,
                    const Operand& of) {
  if (operand.facts.fit && operand.facts.elements == expected && expected != kTooMany) return kOk;
  return aclgrad_check_numel(op, operand, expected, meaning, of);
}

inline Status sizes(const char* op, const Operand& operand) {
  return operand.facts.fit ? kOk : aclgrad_check_sizes(op, operand);
}

// The operand's dtype is one of `allowed`.
inline Status dtype(const char* op, const Operand& operand,
                    std::initializer_list<aclDataType> allowed) {
  if (!operand.given()) return kOk;
  for (const aclDataType candidate : allowed) {
    if (operand.dtype == candidate) return kOk;
  }
  return aclgrad_refuse_dtype(op, operand, allowed);
}

// Base formats only: private layouts and unknown values are refused.
inline Status format(const char* op, const Operand& operand) {
  constexpr uint64_t kBaseFormats = [] {
    uint64_t bits = 0;
    for (const aclFormat base :
         {ACL_FORMAT_UNDEFINED, ACL_FORMAT_NCHW, ACL_FORMAT_NHWC, ACL_FORMAT_ND, ACL_FORMAT_HWCN,
          ACL_FORMAT_NDHWC, ACL_FORMAT_NCDHW, ACL_FORMAT_NC, ACL_FORMAT_NCL}) {
      bits |= uint64_t{1} << (static_cast<int>(base) + 1);
    }
    return bits;
  }();
  if (!operand.given()) return kOk;
  const uint32_t bit = static_cast<uint32_t>(operand.format) + 1;  // UNDEFINED is -1
  if (bit < 64 && (kBaseFormats >> bit & 1) != 0) return kOk;
  return aclgrad_refuse_format(op, operand);
}

// Rank between least and most (at most 8), and no negative dimension.
inline Status rank(const char* op, const Operand& operand, uint64_t least, uint64_t most) {
  if (!operand.given()) return kOk;
  bool right = operand.rank >= least && operand.rank <= most && operand.rank <= kMaxRank;
  // What fits has no negative dimension.
  for (int i = 0; !operand.facts.fit && i < operand.kept_dims(); ++i) {
    right = right && operand.dim(i) >= 0;
  }
  return right ? kOk : aclgrad_refuse_rank(op, operand, least, most);
}

}  // namespace aclgrad::check

#endif  // ACLGRAD_TENSOR_CHECK_H_
