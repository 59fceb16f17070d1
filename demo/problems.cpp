// SPDX-License-Identifier: Apache-2.0
// What of the text each operator gets:
//   LayerNormBackward            one row a word: its vector in a table, and that row's own
//   statistics EmbeddingDenseBackward       the words as indices into the vocabulary
//   ScaledMaskedSoftmaxBackward  causal attention inside each line; words past its end are masked
//   GroupedBiasAddGrad           one row a line, grouped by the text's books or parts
//   NsaCompressGrad              the chapters as sequences of words
#include "problem.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "array.h"
#include "ops/embedding_dense_backward/reference.h"
#include "ops/grouped_bias_add_grad/reference.h"
#include "ops/layer_norm_backward/reference.h"
#include "ops/nsa_compress_grad/reference.h"
#include "ops/scaled_masked_softmax_backward/reference.h"

namespace aclgrad::demo {
namespace {

constexpr int64_t kMostWords = 65536;  // the reference in double takes a second for these
constexpr int64_t kWidth = 128;

// A number in [-1, 1) that depends on its arguments alone: gradients, and the vectors of words.
double noise(size_t a, size_t b) {
  uint64_t z = (a * 0x9E3779B97F4A7C15u) ^ (b * 0xC2B2AE3D27D4EB4Fu);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1.0;
}

std::string dims_text(std::initializer_list<int64_t> dims) {
  std::string text;
  for (const int64_t dim : dims) text += (text.empty() ? "" : "x") + std::to_string(dim);
  return text;
}

int64_t words_used(const Text& text) {
  return std::min(kMostWords, static_cast<int64_t>(text.words.size()));
}

// The ends up to `most`, the last of them `most` itself.
std::vector<int64_t> ends_until(const std::vector<int64_t>& ends, int64_t most) {
  std::vector<int64_t> out;
  for (const int64_t end : ends) {
    if (end < most) out.push_back(end);
  }
  out.push_back(most);
  return out;
}

Result layer_norm_backward(const Text& text, aclDataType dtype) {
  const int64_t rows = words_used(text);
  Array dy({rows, kWidth}, dtype), x({rows, kWidth}, dtype), dx({rows, kWidth}, dtype);
  Array mean({rows, 1}, ACL_FLOAT), rstd({rows, 1}, ACL_FLOAT), gamma({kWidth}, ACL_FLOAT);
  Array dgamma({kWidth}, ACL_FLOAT), dbeta({kWidth}, ACL_FLOAT);
  dy.fill([](size_t i) { return noise(i, 1); });
  x.fill([&](size_t i) {
    return noise(static_cast<size_t>(text.words[i / kWidth]), i % kWidth) + 0.25;
  });
  gamma.fill([](size_t i) { return 1.0 + 0.1 * noise(i, 2); });
  const std::vector<double> values = x.values();
  const auto row_mean = [&](size_t r) {
    double sum = 0;
    for (size_t c = 0; c < kWidth; ++c) sum += values[r * kWidth + c];
    return sum / kWidth;
  };
  mean.fill(row_mean);
  rstd.fill([&](size_t r) {
    const double m = row_mean(r);
    double sum = 0;
    for (size_t c = 0; c < kWidth; ++c) {
      sum += (values[r * kWidth + c] - m) * (values[r * kWidth + c] - m);
    }
    return 1.0 / std::sqrt(sum / kWidth + 1e-5);
  });
  const int64_t width = kWidth;
  const bool all[3] = {true, true, true};
  aclIntArray* normalized = aclCreateIntArray(&width, 1);
  aclBoolArray* mask = aclCreateBoolArray(all, 3);
  Result out;
  out.shape = dims_text({rows, kWidth}) + " (words)";
  out.bytes = static_cast<int64_t>(3 * x.size() + mean.size() + rstd.size() + 3 * gamma.size());
  out.seconds = time_runs(
      "aclnnLayerNormBackward",
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnLayerNormBackwardGetWorkspaceSize(
            dy.handle(), x.handle(), normalized, mean.handle(), rstd.handle(), gamma.handle(),
            nullptr, mask, dx.handle(), dgamma.handle(), dbeta.handle(), size, executor);
      },
      aclnnLayerNormBackward);
  static_cast<void>(aclDestroyIntArray(normalized));
  static_cast<void>(aclDestroyBoolArray(mask));
  const auto exact =
      layer_norm_backward::reference(static_cast<size_t>(rows), kWidth, dy.values(), values,
                                     mean.values(), rstd.values(), gamma.values());
  const auto terms = static_cast<double>(rows);
  out.error = std::max({largest_error(dx, exact.dx, exact.dx_magnitude, kWidth),
                        largest_error(dgamma, exact.dgamma, exact.dgamma_magnitude, terms),
                        largest_error(dbeta, exact.dbeta, exact.dbeta_magnitude, terms)});
  return out;
}

Result embedding_dense_backward(const Text& text, aclDataType dtype) {
  const int64_t words = words_used(text);
  Array dy({words, kWidth}, dtype), indices({words}, ACL_INT64);
  Array dw({text.vocabulary, kWidth}, dtype);
  dy.fill([](size_t i) { return noise(i, 3); });
  indices.fill([&](size_t i) { return static_cast<double>(text.words[i]); });
  Result out;
  out.shape =
      dims_text({words, kWidth}) + " to " + dims_text({text.vocabulary, kWidth}) + " (words)";
  out.bytes = static_cast<int64_t>(dy.size() + indices.size() + dw.size());
  constexpr uint64_t kNoPadding = ~uint64_t{0};
  out.seconds = time_runs(
      "aclnnEmbeddingDenseBackward",
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnEmbeddingDenseBackwardGetWorkspaceSize(
            dy.handle(), indices.handle(), static_cast<uint64_t>(text.vocabulary), kNoPadding,
            false, dw.handle(), size, executor);
      },
      aclnnEmbeddingDenseBackward);
  embedding_dense_backward::ReferenceProblem problem;
  problem.cols = kWidth;
  problem.table_rows = static_cast<size_t>(text.vocabulary);
  problem.dy = dy.values();
  problem.indices = indices.values();
  const auto exact = embedding_dense_backward::reference(problem);
  out.error = largest_error(dw, exact.dw, exact.magnitude, static_cast<double>(exact.most_terms));
  return out;
}

Result scaled_masked_softmax_backward(const Text& text, aclDataType dtype) {
  constexpr int64_t kHeads = 4, kLength = 64;
  const int64_t lines = std::min<int64_t>(256, static_cast<int64_t>(text.line_ends.size()));
  const std::vector<int64_t> shape = {lines, kHeads, kLength, kLength};
  Array dy(shape, dtype), y(shape, dtype), dx(shape, dtype);
  Array mask({lines, 1, kLength, kLength}, ACL_BOOL);
  const auto line_length = [&](size_t line) {
    const int64_t begin = line == 0 ? 0 : text.line_ends[line - 1];
    return std::min(kLength, text.line_ends[line] - begin);
  };
  const auto masked = [&](size_t line, size_t query, size_t key) {
    return key > query || static_cast<int64_t>(key) >= line_length(line);
  };
  dy.fill([](size_t i) { return noise(i, 4); });
  mask.fill([&](size_t i) {
    const size_t query = i / kLength % kLength, line = i / (kLength * kLength);
    return masked(line, query, i % kLength) ? 1.0 : 0.0;
  });
  // Every visible key of a query has a weight by chance, and they sum to one.
  y.fill([&](size_t i) {
    const size_t key = i % kLength, row = i / kLength;
    const size_t query = row % kLength, line = row / (kLength * kHeads);
    if (masked(line, query, key)) return 0.0;
    double sum = 0;
    for (size_t k = 0; k < kLength; ++k) {
      if (!masked(line, query, k)) sum += std::exp(noise(row, k));
    }
    return std::exp(noise(row, key)) / sum;
  });
  const double scale = 1.0 / std::sqrt(static_cast<double>(kLength));
  Result out;
  out.shape = dims_text({lines, kHeads, kLength, kLength}) + " (lines)";
  out.bytes = static_cast<int64_t>(3 * y.size() + mask.size());
  out.seconds = time_runs(
      "aclnnScaledMaskedSoftmaxBackward",
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
            dy.handle(), y.handle(), mask.handle(), scale, false, dx.handle(), size, executor);
      },
      aclnnScaledMaskedSoftmaxBackward);
  const auto batches = static_cast<size_t>(lines);
  const auto exact =
      scaled_masked_softmax_backward::reference({batches, kHeads, kLength, kLength, batches, 1},
                                                dy.values(), y.values(), mask.values(), scale);
  out.error = largest_error(dx, exact.dx, exact.dx_magnitude, kLength);
  return out;
}

Result grouped_bias_add_grad(const Text& text, aclDataType dtype) {
  constexpr int64_t kColumns = 256;
  const int64_t lines = std::min(kMostWords / 2, static_cast<int64_t>(text.line_ends.size()));
  std::vector<int64_t> ends = ends_until(text.part_ends, lines);
  if (ends.size() > 2048) {
    ends.resize(2047);
    ends.push_back(lines);
  }
  const auto parts = static_cast<int64_t>(ends.size());
  Array dy({lines, kColumns}, dtype), group_idx({parts}, ACL_INT64),
      dbias({parts, kColumns}, dtype);
  dy.fill([](size_t i) { return noise(i, 5); });
  group_idx.fill([&](size_t i) { return static_cast<double>(ends[i]); });
  Result out;
  out.shape = dims_text({lines, kColumns}) + " in " + std::to_string(parts) + " (lines, parts)";
  out.bytes = static_cast<int64_t>(dy.size() + group_idx.size() + dbias.size());
  out.seconds = time_runs(
      "aclnnGroupedBiasAddGrad",
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnGroupedBiasAddGradGetWorkspaceSize(dy.handle(), group_idx.handle(),
                                                       dbias.handle(), size, executor);
      },
      aclnnGroupedBiasAddGrad);
  const auto exact = grouped_bias_add_grad::reference(
      kColumns, dy.values(), grouped_bias_add_grad::named_groups(ends, false, lines));
  out.error = largest_error(dbias, exact.dbias, exact.dbias_magnitude, static_cast<double>(lines));
  return out;
}

Result nsa_compress_grad(const Text& text, aclDataType dtype) {
  constexpr int64_t kHeads = 2, kHeadWidth = 64, kBlock = 32, kStride = 16;
  const int64_t words = words_used(text);
  const std::vector<int64_t> ends = ends_until(text.chapter_ends, words);
  const std::vector<int64_t> starts =
      nsa_compress_grad::window_starts(words, kBlock, kStride, ends);
  const auto windows = static_cast<int64_t>(starts.size());
  Array dy({windows, kHeads, kHeadWidth}, dtype), x({words, kHeads, kHeadWidth}, dtype);
  Array w({kBlock, kHeads}, dtype), dx({words, kHeads, kHeadWidth}, dtype);
  Array dw({kBlock, kHeads}, dtype);
  dy.fill([](size_t i) { return noise(i, 6); });
  x.fill([&](size_t i) {
    constexpr size_t kRow = kHeads * kHeadWidth;
    return noise(static_cast<size_t>(text.words[i / kRow]), i % kRow);
  });
  w.fill([](size_t i) { return noise(i, 7) / kBlock; });
  aclIntArray* sequence_ends = aclCreateIntArray(ends.data(), ends.size());
  char layout[] = "TND";
  Result out;
  out.shape = dims_text({words, kHeads, kHeadWidth}) + " in " + std::to_string(ends.size()) +
              " (words, chapters)";
  out.bytes = static_cast<int64_t>(dy.size() + x.size() + dx.size() + 2 * w.size());
  out.seconds = time_runs(
      "aclnnNsaCompressGrad",
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnNsaCompressGradGetWorkspaceSize(dy.handle(), x.handle(), w.handle(),
                                                    sequence_ends, kBlock, kStride, 0, layout,
                                                    dx.handle(), dw.handle(), size, executor);
      },
      aclnnNsaCompressGrad);
  static_cast<void>(aclDestroyIntArray(sequence_ends));
  const auto exact = nsa_compress_grad::reference(kHeads, kHeadWidth, kBlock, starts, dy.values(),
                                                  x.values(), w.values());
  out.error = std::max(
      largest_error(dx, exact.dx, exact.dx_magnitude, kBlock / kStride),
      largest_error(dw, exact.dw, exact.dw_magnitude, static_cast<double>(windows * kHeadWidth)));
  return out;
}

}  // namespace

std::vector<Problem> problems(const Text& text) {
  std::vector<Problem> out;
  const auto add = [&](const char* op, Result (*measure)(const Text&, aclDataType),
                       std::initializer_list<aclDataType> dtypes) {
    for (const aclDataType dtype : dtypes) {
      out.push_back({op, dtype_short_name(dtype), [=, &text] {
                       Result result = measure(text, dtype);
                       result.op = op;
                       result.dtype = dtype_short_name(dtype);
                       return result;
                     }});
    }
  };
  const auto floats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
  add("layer_norm_backward", layer_norm_backward, floats);
  add("embedding_dense_backward", embedding_dense_backward, floats);
  add("scaled_masked_softmax_backward", scaled_masked_softmax_backward, floats);
  add("grouped_bias_add_grad", grouped_bias_add_grad, floats);
  add("nsa_compress_grad", nsa_compress_grad, {ACL_FLOAT16, ACL_BF16});
  return out;
}

}  // namespace aclgrad::demo
