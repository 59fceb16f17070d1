// SPDX-License-Identifier: Apache-2.0
#include "protocol/small_problems.h"

#include <cmath>

#include "aclnnop/aclnn_embedding.h"
#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "aclnnop/aclnn_layer_norm.h"
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "aclnnop/aclnn_nsa_compress.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"

namespace aclgrad::test {
namespace {

constexpr Parameter in(const char* name) { return {name, false, false, false}; }
constexpr Parameter optional(const char* name) { return {name, false, true, false}; }
constexpr Parameter out(const char* name) { return {name, true, false, false}; }

std::shared_ptr<Tensor> tensor(Dims dims, aclDataType dtype,
                               Arrangement arrangement = Arrangement::kContiguous) {
  return std::make_shared<Tensor>(std::move(dims), dtype, arrangement);
}

// Inputs get numbers, outputs stay poisoned.
void fill_floats(SmallProblem& problem, uint64_t seed) {
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    Tensor& each = *problem.tensors[i];
    if (!problem.parameters[i].output && is_float_dtype(each.dtype())) {
      each.fill_normal(seed * 100 + i);
    }
  }
}

// Contract pointers are const for some outputs and not for others.
aclTensor* writable(const aclTensor* handle) { return const_cast<aclTensor*>(handle); }

SmallProblem layer_norm(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnLayerNorm";
  p.folder = "layer_norm";
  p.parameters = {in("input"),
                  optional("weightOptional"),
                  optional("biasOptional"),
                  out("out"),
                  {"meanOutOptional", true, true, false},
                  {"rstdOutOptional", true, true, false}};
  p.tensors = {tensor({6, 20}, ACL_BF16, a),   tensor({20}, ACL_FLOAT, a),
               tensor({20}, ACL_FLOAT, a),     tensor({6, 20}, ACL_FLOAT, a),
               tensor({6, 1}, ACL_FLOAT16, a), tensor({6, 1}, ACL_FLOAT, a)};
  const auto shape = std::make_shared<IntArray>(Dims{20});
  p.arrays = {shape};
  p.plan_with = [shape](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnLayerNormGetWorkspaceSize(t[0], shape->handle(), t[1], t[2], 1e-5, writable(t[3]),
                                          writable(t[4]), writable(t[5]), size, executor);
  };
  p.execute = aclnnLayerNorm;
  return p;
}

SmallProblem layer_norm_with_impl_mode(Arrangement a) {
  SmallProblem p = layer_norm(a);
  p.function = "aclnnLayerNormWithImplMode";
  const auto shape = std::make_shared<IntArray>(Dims{20});
  p.arrays = {shape};
  p.plan_with = [shape](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnLayerNormWithImplModeGetWorkspaceSize(t[0], shape->handle(), t[1], t[2], 1e-5,
                                                      writable(t[3]), writable(t[4]),
                                                      writable(t[5]), 1, size, executor);
  };
  p.execute = aclnnLayerNormWithImplMode;
  return p;
}

SmallProblem layer_norm_backward(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnLayerNormBackward";
  p.folder = "layer_norm_backward";
  p.parameters = {in("gradOut"),
                  in("input"),
                  in("mean"),
                  in("rstd"),
                  optional("weightOptional"),
                  {"biasOptional", false, true, true},
                  out("gradInputOut"),
                  out("gradWeightOut"),
                  out("gradBiasOut")};
  p.tensors = {
      tensor({6, 20}, ACL_FLOAT, a), tensor({6, 20}, ACL_FLOAT, a), tensor({6, 1}, ACL_FLOAT, a),
      tensor({6, 1}, ACL_FLOAT, a),  tensor({20}, ACL_FLOAT, a),    tensor({20}, ACL_FLOAT, a),
      tensor({6, 20}, ACL_FLOAT, a), tensor({20}, ACL_FLOAT, a),    tensor({20}, ACL_FLOAT, a)};
  const auto shape = std::make_shared<IntArray>(Dims{20});
  const auto mask = std::make_shared<BoolArray>(std::vector<bool>{true, true, true});
  p.arrays = {shape, mask};
  p.plan_with = [shape, mask](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnLayerNormBackwardGetWorkspaceSize(t[0], t[1], shape->handle(), t[2], t[3], t[4],
                                                  t[5], mask->handle(), writable(t[6]),
                                                  writable(t[7]), writable(t[8]), size, executor);
  };
  p.execute = aclnnLayerNormBackward;
  return p;
}

SmallProblem embedding(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnEmbedding";
  p.folder = "embedding";
  p.parameters = {in("weight"), in("indices"), out("out")};
  p.tensors = {tensor({7, 24}, ACL_BF16, a), tensor({2, 5}, ACL_INT32),
               tensor({2, 5, 24}, ACL_BF16, a)};
  p.tensors[1]->fill({6, 1, 1, 0, 3, 6, 6, 2, 5, 1});
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnEmbeddingGetWorkspaceSize(t[0], t[1], t[2], size, executor);
  };
  p.execute = aclnnEmbedding;
  return p;
}

SmallProblem embedding_dense_backward(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnEmbeddingDenseBackward";
  p.folder = "embedding_dense_backward";
  p.parameters = {in("grad"), in("indices"), out("out")};
  p.tensors = {tensor({10, 24}, ACL_FLOAT16, a), tensor({10}, ACL_INT64),
               tensor({7, 24}, ACL_FLOAT, a)};
  p.tensors[1]->fill({6, 1, 1, 0, 3, 6, 6, 2, 5, 1});
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnEmbeddingDenseBackwardGetWorkspaceSize(t[0], t[1], 7, 5, false, t[2], size,
                                                       executor);
  };
  p.execute = aclnnEmbeddingDenseBackward;
  return p;
}

SmallProblem scaled_masked_softmax_backward(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnScaledMaskedSoftmaxBackward";
  p.folder = "scaled_masked_softmax_backward";
  p.parameters = {in("gradOutput"), in("y"), in("mask"), out("out")};
  p.tensors = {tensor({2, 3, 5, 24}, ACL_BF16, a), tensor({2, 3, 5, 24}, ACL_BF16, a),
               tensor({2, 1, 5, 24}, ACL_BOOL), tensor({2, 3, 5, 24}, ACL_BF16, a)};
  p.tensors[2]->fill_integers(9, 0, 1);
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(t[0], t[1], t[2], 0.25, false,
                                                            writable(t[3]), size, executor);
  };
  p.execute = aclnnScaledMaskedSoftmaxBackward;
  return p;
}

SmallProblem scaled_masked_softmax(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnScaledMaskedSoftmax";
  p.folder = "scaled_masked_softmax";
  p.parameters = {in("x"), in("mask"), out("y")};
  p.tensors = {tensor({2, 3, 5, 24}, ACL_FLOAT, a), tensor({2, 1, 5, 24}, ACL_BOOL),
               tensor({2, 3, 5, 24}, ACL_FLOAT, a)};
  p.tensors[1]->fill_integers(9, 0, 1);
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnScaledMaskedSoftmaxGetWorkspaceSize(t[0], t[1], 0.25, false, writable(t[2]), size,
                                                    executor);
  };
  p.execute = aclnnScaledMaskedSoftmax;
  return p;
}

SmallProblem grouped_bias_add_grad(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnGroupedBiasAddGrad";
  p.folder = "grouped_bias_add_grad";
  p.parameters = {in("gradY"), optional("groupIdxOptional"), out("out")};
  p.tensors = {tensor({12, 24}, ACL_FLOAT, a), tensor({4}, ACL_INT64),
               tensor({4, 24}, ACL_FLOAT, a)};
  p.tensors[1]->fill({3, 3, 10, 12});
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnGroupedBiasAddGradGetWorkspaceSize(t[0], t[1], writable(t[2]), size, executor);
  };
  p.execute = aclnnGroupedBiasAddGrad;
  return p;
}

SmallProblem grouped_bias_add_grad_by_sizes(Arrangement a) {
  SmallProblem p = grouped_bias_add_grad(a);
  p.function = "aclnnGroupedBiasAddGradV2";
  p.tensors[1] = tensor({4}, ACL_INT32);
  p.tensors[1]->fill({3, 0, 7, 2});
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnGroupedBiasAddGradV2GetWorkspaceSize(t[0], t[1], 1, writable(t[2]), size, executor);
  };
  p.execute = aclnnGroupedBiasAddGradV2;
  return p;
}

SmallProblem nsa_compress_grad(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnNsaCompressGrad";
  p.folder = "nsa_compress_grad";
  p.parameters = {in("outputGrad"), in("input"), in("weight"), out("inputGradOut"),
                  out("weightGradOut")};
  p.tensors = {tensor({4, 2, 16}, ACL_FLOAT16, a), tensor({100, 2, 16}, ACL_FLOAT16, a),
               tensor({32, 2}, ACL_FLOAT16, a), tensor({100, 2, 16}, ACL_FLOAT16, a),
               tensor({32, 2}, ACL_FLOAT16, a)};
  const auto ends = std::make_shared<IntArray>(Dims{48, 50, 100});  // 2, 0 and 2 windows
  p.arrays = {ends};
  p.plan_with = [ends](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    char layout[] = "TND";
    return aclnnNsaCompressGradGetWorkspaceSize(t[0], t[1], t[2], ends->handle(), 32, 16, 0, layout,
                                                t[3], t[4], size, executor);
  };
  p.execute = aclnnNsaCompressGrad;
  return p;
}

SmallProblem nsa_compress(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnNsaCompress";
  p.folder = "nsa_compress";
  p.parameters = {in("input"), in("weight"), out("output")};
  p.tensors = {tensor({100, 2, 16}, ACL_BF16, a), tensor({32, 2}, ACL_BF16, a),
               tensor({4, 2, 16}, ACL_BF16, a)};
  const auto ends = std::make_shared<IntArray>(Dims{48, 50, 100});  // 2, 0 and 2 windows
  p.arrays = {ends};
  p.plan_with = [ends](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    char layout[] = "TND";
    return aclnnNsaCompressGetWorkspaceSize(t[0], t[1], ends->handle(), layout, 32, 16, 0,
                                            writable(t[2]), size, executor);
  };
  p.execute = aclnnNsaCompress;
  return p;
}

using Make = SmallProblem (*)(Arrangement);
constexpr Make kRows[kSmallProblems] = {layer_norm_backward,
                                        embedding_dense_backward,
                                        scaled_masked_softmax_backward,
                                        grouped_bias_add_grad,
                                        grouped_bias_add_grad_by_sizes,
                                        nsa_compress_grad,
                                        scaled_masked_softmax,
                                        nsa_compress,
                                        layer_norm,
                                        layer_norm_with_impl_mode,
                                        embedding};

}  // namespace

SmallProblem make_small_problem(size_t row, Arrangement arrangement, uint64_t seed) {
  SmallProblem problem = kRows[row](arrangement);
  fill_floats(problem, seed);
  return problem;
}

std::string small_problem_name(size_t row) {
  return make_small_problem(row).function.substr(5);  // without "aclnn"
}

std::vector<uint8_t> expected_result(size_t row, uint64_t seed) {
  const SmallProblem problem = make_small_problem(row, Arrangement::kContiguous, seed);
  const Outcome outcome =
      run([&](uint64_t* size, aclOpExecutor** executor) { return problem.plan(size, executor); },
          problem.execute);
  EXPECT_TRUE(outcome.ok()) << problem.function << ": " << outcome;
  EXPECT_TRUE(problem.guards_intact()) << problem.function;
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    for (const double value : problem.tensors[i]->values()) EXPECT_TRUE(std::isfinite(value));
  }
  return problem.result();
}

}  // namespace aclgrad::test
