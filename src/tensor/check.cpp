// SPDX-License-Identifier: Apache-2.0
#include "tensor/check.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/dtype.h"

namespace aclgrad::check {
namespace {

const char* format_name(aclFormat format) {
  switch (format) {
    case ACL_FORMAT_NC1HWC0:
      return "NC1HWC0";
    case ACL_FORMAT_FRACTAL_Z:
      return "FRACTAL_Z";
    case ACL_FORMAT_NC1HWC0_C04:
      return "NC1HWC0_C04";
    case ACL_FORMAT_FRACTAL_NZ:
      return "FRACTAL_NZ";
    case ACL_FORMAT_NDC1HWC0:
      return "NDC1HWC0";
    case ACL_FRACTAL_Z_3D:
      return "FRACTAL_Z_3D";
    case ACL_FORMAT_FRACTAL_NZ_C0_16:
    case ACL_FORMAT_FRACTAL_NZ_C0_32:
    case ACL_FORMAT_FRACTAL_NZ_C0_2:
    case ACL_FORMAT_FRACTAL_NZ_C0_4:
    case ACL_FORMAT_FRACTAL_NZ_C0_8:
      return "FRACTAL_NZ with a C0";
    default:
      return "unknown";
  }
}

// False when the product leaves int64. No std::optional: returned by a function, it is written in
// two pieces and read in one, which waits for both.
bool count_elements(const Operand& operand, int64_t& count) {
  count = 0;
  for (int i = 0; i < operand.kept_dims(); ++i) {
    if (operand.dim(i) == 0) return true;
  }
  count = 1;
  for (int i = 0; i < operand.kept_dims(); ++i) {
    if (__builtin_mul_overflow(count, operand.dim(i), &count)) return false;
  }
  return true;
}

std::string element_count(const Operand& operand) {
  int64_t count = 0;
  if (!count_elements(operand, count)) return "more than 2^63 elements";
  return std::to_string(count) + (count == 1 ? " element" : " elements");
}

Status refuse_shape(const char* op, const Operand& operand, std::span<const int64_t> expected,
                    const char* meaning) {
  return fail(kParamInvalid, "%s: %s has shape %s; expected %s, %s", op, operand.name,
              shape_text(operand).c_str(), shape_text(expected.data(), expected.size()).c_str(),
              meaning);
}

// Whether the view's lowest and highest byte, counted from the storage's base, and the distance
// between them fit int64. They are found on the way.
bool reach_fits(const Operand& operand, int64_t size, int64_t& low, int64_t& high) {
  low = operand.offset;
  high = operand.offset;
  for (int i = 0; i < operand.kept_dims(); ++i) {
    const auto index = static_cast<size_t>(i);
    if (operand.dims[index] <= 1) continue;
    int64_t step = 0;
    int64_t& side = operand.strides[index] < 0 ? low : high;
    if (__builtin_mul_overflow(operand.dims[index] - 1, operand.strides[index], &step) ||
        __builtin_add_overflow(side, step, &side)) {
      return false;
    }
  }
  int64_t bytes = 0;
  return !__builtin_mul_overflow(low, size, &low) && !__builtin_mul_overflow(high, size, &high) &&
         !__builtin_add_overflow(high, size, &high) && !__builtin_sub_overflow(high, low, &bytes);
}

int64_t element_bytes(const Operand& operand) {
  return std::max<int64_t>(1, static_cast<int64_t>(dtype_size(operand.dtype)));
}

int dense_dims_of(const Operand& operand) {
  int64_t expected = 1;
  for (int i = operand.kept_dims() - 1; i >= 0; --i) {
    const auto index = static_cast<size_t>(i);
    if (operand.dims[index] == 1) continue;
    if (operand.strides[index] != expected) return operand.kept_dims() - 1 - i;
    expected *= operand.dims[index];
  }
  return operand.kept_dims();
}

}  // namespace

// As aclgrad_check_sizes judges.
Facts facts_of(const Operand& operand) {
  Facts facts;
  if (operand.rank > kMaxRank || operand.storage_elements == kStorageInvalid) return facts;
  for (int i = 0; i < operand.kept_dims(); ++i) {
    if (operand.dim(i) < 0) return facts;
  }
  const int64_t size = element_bytes(operand);
  if (!count_elements(operand, facts.elements)) return facts;
  facts.fit = facts.elements == 0;
  if (facts.fit || !checked_product({facts.elements, size})) return facts;
  facts.fit = reach_fits(operand, size, facts.low, facts.high);
  if (!facts.fit) return facts;
  facts.first = operand.offset * size;
  facts.dense_dims = dense_dims_of(operand);
  return facts;
}

extern "C" {

Status aclgrad_refuse_null(const char* op, const char* name) {
  return fail(kParamNullptr, "%s: %s is null; it is required", op, name);
}

Status aclgrad_refuse_dtype(const char* op, const Operand& operand,
                            std::initializer_list<aclDataType> allowed) {
  // An operator that allows a fixed dtype and another tensor's may name one twice.
  std::vector<aclDataType> distinct;
  for (const aclDataType candidate : allowed) {
    if (std::find(distinct.begin(), distinct.end(), candidate) == distinct.end()) {
      distinct.push_back(candidate);
    }
  }
  std::string names;
  size_t left = distinct.size();
  for (const aclDataType candidate : distinct) {
    names += dtype_name(candidate);
    --left;
    if (left > 0) names += left == 1 ? " or " : ", ";
  }
  return fail(kParamInvalid, "%s: %s has dtype %s (%d); expected %s", op, operand.name,
              dtype_name(operand.dtype), static_cast<int>(operand.dtype), names.c_str());
}

Status aclgrad_refuse_other_dtype(const char* op, const Operand& operand, const Operand& other) {
  return fail(kParamInvalid, "%s: %s has dtype %s (%d); expected %s, the dtype of %s", op,
              operand.name, dtype_name(operand.dtype), static_cast<int>(operand.dtype),
              dtype_name(other.dtype), other.name);
}

Status aclgrad_refuse_format(const char* op, const Operand& operand) {
  return fail(kParamInvalid,
              "%s: %s has format %s (%d); expected ND, NCHW, NHWC, NCL, NCDHW, NDHWC, HWCN, NC or "
              "UNDEFINED",
              op, operand.name, format_name(operand.format), static_cast<int>(operand.format));
}

Status aclgrad_refuse_rank(const char* op, const Operand& operand, uint64_t least, uint64_t most) {
  most = std::min<uint64_t>(most, kMaxRank);
  if (operand.rank >= least && operand.rank <= most) {
    return fail(kParamInvalid, "%s: %s has shape %s; expected no negative dimension", op,
                operand.name, shape_text(operand).c_str());
  }
  const std::string range =
      least == most ? std::to_string(least) : std::to_string(least) + " to " + std::to_string(most);
  return fail(kParamInvalid, "%s: %s has %llu dimensions; expected %s", op, operand.name,
              static_cast<unsigned long long>(operand.rank), range.c_str());
}

Status aclgrad_check_shape(const char* op, const Operand& operand,
                           std::span<const int64_t> expected, const char* meaning) {
  if (!operand.given()) return kOk;
  const bool same = operand.rank == expected.size() && operand.rank <= kMaxRank &&
                    std::equal(expected.begin(), expected.end(), operand.dims.begin());
  return same ? kOk : refuse_shape(op, operand, expected, meaning);
}

Status aclgrad_refuse_other_shape(const char* op, const Operand& operand, const Operand& other) {
  return fail(kParamInvalid, "%s: %s has shape %s; expected %s, the shape of %s", op, operand.name,
              shape_text(operand).c_str(), shape_text(other).c_str(), other.name);
}

Status aclgrad_check_numel(const char* op, const Operand& operand, int64_t expected,
                           const char* meaning, const Operand& of) {
  if (!operand.given()) return kOk;
  int64_t found = 0;
  if (expected != kTooMany && count_elements(operand, found) && found == expected) return kOk;
  const std::string count = expected == kTooMany ? "more than 2^63-1" : std::to_string(expected);
  return fail(kParamInvalid, "%s: %s has shape %s (%s); expected %s elements, %s %s", op,
              operand.name, shape_text(operand).c_str(), element_count(operand).c_str(),
              count.c_str(), meaning, shape_text(of).c_str());
}

Status aclgrad_check_sizes(const char* op, const Operand& operand) {
  if (!operand.given()) return kOk;
  if (operand.storage_elements == kStorageInvalid) {
    return fail(kParamInvalid,
                "%s: %s has a negative storage dimension; expected sizes of 0 and more", op,
                operand.name);
  }
  const int64_t size = element_bytes(operand);
  int64_t count = 0;
  const bool counted = count_elements(operand, count);
  if (counted && count == 0) return kOk;
  if (!counted || !checked_product({count, size})) {
    return fail(kParamInvalid,
                "%s: %s has shape %s of %s; expected at most 2^63-1 bytes of elements", op,
                operand.name, shape_text(operand).c_str(), dtype_name(operand.dtype));
  }
  int64_t low = 0, high = 0;
  if (reach_fits(operand, size, low, high)) return kOk;
  return fail(kParamInvalid,
              "%s: %s with shape %s, strides %s and offset %lld reaches farther than 2^63-1 bytes; "
              "expected a view that memory can hold",
              op, operand.name, shape_text(operand).c_str(),
              shape_text(operand.strides.data(), operand.rank).c_str(),
              static_cast<long long>(operand.offset));
}

}  // extern "C"
}  // namespace aclgrad::check
