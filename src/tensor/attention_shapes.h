// SPDX-License-Identifier: Apache-2.0
// Tensors [B, N, S1, S2] and the mask that goes with them: the checks of phase one, the mask as a
// view of their shape, and the name such a problem has in a bench. Checks are as in check.h.
#ifndef ACLGRAD_TENSOR_ATTENTION_SHAPES_H_
#define ACLGRAD_TENSOR_ATTENTION_SHAPES_H_

#include <array>
#include <string>

#include "tensor/operand.h"

namespace aclgrad::check {

extern "C" {
// At most `most` in the last dim.
[[gnu::visibility("default")]] Status aclgrad_check_attention_cols(const char* op,
                                                                   const Operand& operand,
                                                                   int64_t most);
// The mask has the shape of `of`, where either of the first two dims may be 1. Both are of rank 4.
[[gnu::visibility("default")]] Status aclgrad_check_attention_mask(const char* op,
                                                                   const Operand& mask,
                                                                   const Operand& of);
}

inline constexpr auto& attention_cols = aclgrad_check_attention_cols;
inline constexpr auto& attention_mask = aclgrad_check_attention_mask;

}  // namespace aclgrad::check

namespace aclgrad {

// Makes a mask that passed its check a view of `shape`'s dims.
inline void repeat_mask(View& mask, const View& shape) {
  for (size_t i = 0; i < 2; ++i) {
    if (mask.dims[i] == 1) mask.strides[i] = 0;
    mask.dims[i] = shape.dims[i];
  }
}

// "<folder>/f16/8x16x512x512".
inline std::string attention_problem_name(const char* folder, const View& shape) {
  std::string name = std::string(folder) + "/" + dtype_short_name(shape.dtype) + "/";
  for (size_t i = 0; i < 4; ++i) name += (i == 0 ? "" : "x") + std::to_string(shape.dims[i]);
  return name;
}

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_ATTENTION_SHAPES_H_
