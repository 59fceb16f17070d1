// SPDX-License-Identifier: Apache-2.0
#include "tensor/sequences.h"

#include <cstring>

namespace aclgrad::check {
namespace {

// The contract's unit of windows.
constexpr int64_t kUnit = 16;

Status check_multiple(const char* op, const char* name, int64_t value) {
  if (value > 0 && value % kUnit == 0) return kOk;
  return fail(kParamInvalid, "%s: %s is %lld; expected a positive multiple of 16", op, name,
              static_cast<long long>(value));
}

}  // namespace

extern "C" {

Status aclgrad_check_window_sizes(const char* op, int64_t compress_block_size,
                                  int64_t compress_stride) {
  if (Status s = check_multiple(op, "compressBlockSize", compress_block_size)) return s;
  return check_multiple(op, "compressStride", compress_stride);
}

Status aclgrad_check_sequence_kind(const char* op, int64_t act_seq_len_type,
                                   const char* layout_name, const char* layout) {
  if (act_seq_len_type != 0) {
    return fail(kParamInvalid,
                "%s: actSeqLenType is %lld; expected 0 (cumulative ends), only 0 is supported at "
                "present",
                op, static_cast<long long>(act_seq_len_type));
  }
  if (layout != nullptr && std::strcmp(layout, "TND") != 0) {
    return fail(kParamInvalid, "%s: %s is \"%.32s\"; expected null or \"TND\"", op, layout_name,
                layout);
  }
  return kOk;
}

Status aclgrad_check_sequence_ends(const char* op, const char* name, std::span<const int64_t> ends,
                                   const Operand& tokens) {
  int64_t before = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] < before) {
      return fail(kParamInvalid,
                  "%s: %s[%zu] is %lld; expected at least %lld, the ends may be neither negative "
                  "nor decreasing",
                  op, name, i, static_cast<long long>(ends[i]), static_cast<long long>(before));
    }
    before = ends[i];
  }
  if (before <= tokens.dim(0)) return kOk;
  return fail(kParamInvalid, "%s: %s[%zu] is %lld; expected at most %lld, the tokens of %s %s", op,
              name, ends.size() - 1, static_cast<long long>(before),
              static_cast<long long>(tokens.dim(0)), tokens.name, shape_text(tokens).c_str());
}

Status aclgrad_check_window_weights(const char* op, const Operand& weights, const Operand& tokens) {
  if (weights.dim(1) == tokens.dim(1)) return kOk;
  return fail(kParamInvalid,
              "%s: %s has shape %s; expected [compressBlockSize,%lld], the last dim being the "
              "second of %s %s",
              op, weights.name, shape_text(weights).c_str(), static_cast<long long>(tokens.dim(1)),
              tokens.name, shape_text(tokens).c_str());
}

Status aclgrad_check_window_rows(const char* op, const Operand& rows, const Operand& tokens) {
  if (rows.dim(1) == tokens.dim(1) && rows.dim(2) == tokens.dim(2)) return kOk;
  return fail(kParamInvalid,
              "%s: %s has shape %s; expected [windows,%lld,%lld], the last two dims being those of "
              "%s %s",
              op, rows.name, shape_text(rows).c_str(), static_cast<long long>(tokens.dim(1)),
              static_cast<long long>(tokens.dim(2)), tokens.name, shape_text(tokens).c_str());
}

}  // extern "C"
}  // namespace aclgrad::check
