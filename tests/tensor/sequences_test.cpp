// SPDX-License-Identifier: Apache-2.0
// The rules of sequences of tokens [T, N, D] and windows over them: statuses, whole messages,
// names.
#include "tensor/sequences.h"

#include <gtest/gtest.h>

#include "tensor/operands.h"

namespace aclgrad::test {
namespace {

constexpr const char* kOp = "aclnnNsaCompress";
using Ends = std::vector<int64_t>;

TEST(Sequences, WindowSizesAreMultiplesOfSixteen) {
  EXPECT_EQ(check::window_sizes(kOp, 32, 16), 0);
  EXPECT_EQ(check::window_sizes(kOp, 16, 48), 0) << "how they compare is the operator's rule";
  for (const int64_t wrong : {0, -16, 24, 1}) {
    const std::string text = std::to_string(wrong) + "; expected a positive multiple of 16";
    expect_refused(check::window_sizes(kOp, wrong, 7), 161002,
                   "aclnnNsaCompress: compressBlockSize is " + text);
    expect_refused(check::window_sizes(kOp, 32, wrong), 161002,
                   "aclnnNsaCompress: compressStride is " + text);
  }
}

TEST(Sequences, KindAndLayout) {
  EXPECT_EQ(check::sequence_kind(kOp, 0, "layoutOptional", nullptr), 0);
  EXPECT_EQ(check::sequence_kind(kOp, 0, "layoutOptional", "TND"), 0);
  expect_refused(check::sequence_kind(kOp, 1, "layoutOptional", "BSND"), 161002,
                 "aclnnNsaCompress: actSeqLenType is 1; expected 0 (cumulative ends), only 0 is "
                 "supported at present");
  expect_refused(check::sequence_kind(kOp, 0, "layoutOptional", "BSND"), 161002,
                 "aclnnNsaCompress: layoutOptional is \"BSND\"; expected null or \"TND\"");
  expect_refused(check::sequence_kind(kOp, 0, "layout", std::string(100, 'x').c_str()), 161002,
                 "aclnnNsaCompress: layout is \"" + std::string(32, 'x') + "\"; expected");
}

TEST(Sequences, EndsDoNotDecreaseAndLieWithinTheTokens) {
  const Operand tokens = operand("input", {100, 2, 16});
  for (const Ends& ends : {Ends{}, Ends{0}, Ends{100}, Ends{0, 0, 50, 50, 100}, Ends{99}}) {
    EXPECT_EQ(check::sequence_ends(kOp, "ends", ends, tokens), 0);
  }
  expect_refused(check::sequence_ends(kOp, "ends", Ends{-1, 100}, tokens), 161002,
                 "aclnnNsaCompress: ends[0] is -1; expected at least 0, the ends may be neither "
                 "negative nor decreasing");
  expect_refused(check::sequence_ends(kOp, "ends", Ends{50, 48, 200}, tokens), 161002,
                 "aclnnNsaCompress: ends[1] is 48; expected at least 50, the ends may be neither "
                 "negative nor decreasing");
  expect_refused(check::sequence_ends(kOp, "ends", Ends{48, 101}, tokens), 161002,
                 "aclnnNsaCompress: ends[1] is 101; expected at most 100, the tokens of input "
                 "[100,2,16]");
}

TEST(Sequences, WeightsAndRowsHaveTheHeadsOfTheTokens) {
  const Operand tokens = operand("input", {100, 2, 16});
  EXPECT_EQ(check::window_weights(kOp, operand("weight", {7, 2}), tokens), 0);
  expect_refused(check::window_weights(kOp, operand("weight", {32, 3}), tokens), 161002,
                 "aclnnNsaCompress: weight has shape [32,3]; expected [compressBlockSize,2], the "
                 "last dim being the second of input [100,2,16]");
  EXPECT_EQ(check::window_rows(kOp, operand("output", {7, 2, 16}), tokens), 0);
  for (const Operand& rows : {operand("output", {4, 3, 16}), operand("output", {4, 2, 32})}) {
    expect_refused(check::window_rows(kOp, rows, tokens), 161002,
                   "aclnnNsaCompress: output has shape " + shape_text(rows) +
                       "; expected [windows,2,16], the last two dims being those of input "
                       "[100,2,16]");
  }
}

TEST(Sequences, CountsFollowFromAttributesAndEnds) {
  const Operand tokens = operand("input", {100, 2, 16});
  const Operand weight = operand("weight", {32, 2}), output = operand("output", {4, 2, 16});
  EXPECT_EQ(check::window_counts(kOp, weight, output, tokens, 32, 4), 0);
  expect_refused(check::window_counts(kOp, weight, output, tokens, 48, 5), 161002,
                 "aclnnNsaCompress: weight has shape [32,2]; expected [48,2], compressBlockSize "
                 "and the second of input");
  expect_refused(check::window_counts(kOp, weight, output, tokens, 32, 5), 161002,
                 "aclnnNsaCompress: output has shape [4,2,16]; expected [5,2,16], the number of "
                 "windows and the last two of input");
}

TEST(Sequences, Names) {
  const View tokens = operand("input", {65536, 4, 128}, ACL_BF16).view();
  EXPECT_EQ(windows_problem_name("nsa", tokens, 32, 16, 1), "nsa/bf16/65536x4x128-l32-d16");
  EXPECT_EQ(windows_problem_name("nsa", tokens, 64, 48, 8), "nsa/bf16/65536x4x128-l64-d48-s8");
}

}  // namespace
}  // namespace aclgrad::test
