// SPDX-License-Identifier: Apache-2.0
// Tokens [T, N, D] in sequences, and windows over them: the checks of phase one, and the name such
// a problem has in a bench. Checks are as in check.h.
#ifndef ACLGRAD_TENSOR_SEQUENCES_H_
#define ACLGRAD_TENSOR_SEQUENCES_H_

#include <array>
#include <span>
#include <string>

#include "tensor/check.h"
#include "tensor/operand.h"

namespace aclgrad::check {

extern "C" {
// compressBlockSize and compressStride are positive multiples of 16.
[[gnu::visibility("default")]] Status aclgrad_check_window_sizes(const char* op,
                                                                 int64_t compress_block_size,
                                                                 int64_t compress_stride);
// actSeqLenType is 0; the layout, a parameter named `layout_name`, is null or "TND".
[[gnu::visibility("default")]] Status aclgrad_check_sequence_kind(const char* op,
                                                                  int64_t act_seq_len_type,
                                                                  const char* layout_name,
                                                                  const char* layout);
// The cumulative ends, a parameter named `name`, do not decrease and lie within the tokens.
[[gnu::visibility("default")]] Status aclgrad_check_sequence_ends(const char* op, const char* name,
                                                                  std::span<const int64_t> ends,
                                                                  const Operand& tokens);
// `weights` is [any, N], `rows` is [any, N, D].
[[gnu::visibility("default")]] Status aclgrad_check_window_weights(const char* op,
                                                                   const Operand& weights,
                                                                   const Operand& tokens);
[[gnu::visibility("default")]] Status aclgrad_check_window_rows(const char* op, const Operand& rows,
                                                                const Operand& tokens);
}

inline constexpr auto& window_sizes = aclgrad_check_window_sizes;
inline constexpr auto& sequence_kind = aclgrad_check_sequence_kind;
inline constexpr auto& sequence_ends = aclgrad_check_sequence_ends;
inline constexpr auto& window_weights = aclgrad_check_window_weights;
inline constexpr auto& window_rows = aclgrad_check_window_rows;

// The dims that depend on attributes and on the ends.
inline Status window_counts(const char* op, const Operand& weights, const Operand& rows,
                            const Operand& tokens, int64_t compress_block_size, int64_t windows) {
  const std::array<int64_t, 2> expected = {compress_block_size, tokens.dim(1)};
  if (Status s = shape(op, weights, expected, "compressBlockSize and the second of input")) {
    return s;
  }
  const std::array<int64_t, 3> all = {windows, tokens.dim(1), tokens.dim(2)};
  return shape(op, rows, all, "the number of windows and the last two of input");
}

}  // namespace aclgrad::check

namespace aclgrad {

// "<folder>/bf16/65536x4x128-l32-d16" for windows of 32 tokens every 16; "-s8" for eight sequences.
inline std::string windows_problem_name(const char* folder, const View& tokens, int64_t window,
                                        int64_t step, size_t sequences) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  std::string name = std::string(folder) + "/" + dtype_short_name(tokens.dtype) + "/" +
                     number(tokens.dims[0]) + "x" + number(tokens.dims[1]) + "x" +
                     number(tokens.dims[2]) + "-l" + number(window) + "-d" + number(step);
  if (sequences != 1) name += "-s" + std::to_string(sequences);
  return name;
}

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_SEQUENCES_H_
