// SPDX-License-Identifier: Apache-2.0
#include "tensor/attention_shapes.h"

namespace aclgrad::check {

extern "C" {

Status aclgrad_check_attention_cols(const char* op, const Operand& operand, int64_t most) {
  if (operand.last_dim() <= most) return kOk;
  return fail(kParamInvalid, "%s: %s has shape %s; expected at most %lld in the last dim", op,
              operand.name, shape_text(operand).c_str(), static_cast<long long>(most));
}

Status aclgrad_check_attention_mask(const char* op, const Operand& mask, const Operand& of) {
  const auto fits = [&](int64_t i) { return mask.dim(i) == of.dim(i); };
  const auto broadcasts = [&](int64_t i) { return fits(i) || mask.dim(i) == 1; };
  if (broadcasts(0) && broadcasts(1) && fits(2) && fits(3)) return kOk;
  return fail(kParamInvalid,
              "%s: %s has shape %s; expected the shape of %s %s, where either of the first two "
              "dims may be 1",
              op, mask.name, shape_text(mask).c_str(), of.name, shape_text(of).c_str());
}

}  // extern "C"
}  // namespace aclgrad::check
