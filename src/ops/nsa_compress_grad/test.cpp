// SPDX-License-Identifier: Apache-2.0
// NsaCompressGrad through the C interface, against the formula in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/nsa_compress_grad/test_problem.h"

namespace aclgrad::test {
namespace {

// All ones: a token's gradient counts its windows, a weight's the terms.
TEST(NsaCompressGrad, DocumentedExample) {
  for (const aclDataType dtype : kFloats) {
    Problem ones({88, 1, 16, 32, 16, {48, 88}}, dtype);
    ones.dy.fill_constant(1.0);
    ones.x.fill_constant(1.0);
    ones.w.fill_constant(1.0);
    ASSERT_TRUE(ones.run_it().ok());
    const std::vector<double> counts = {1, 2, 1, 1, 1, 0};  // of tokens 0, 16, 32, 48, 64, 80
    for (size_t token = 0; token < 88; ++token) {
      EXPECT_EQ(ones.dx.values()[token * 16], counts[token / 16]) << "token " << token;
    }
    EXPECT_EQ(ones.dw.values(), std::vector<double>(32, 3 * 16.0));
  }
}

TEST(NsaCompressGrad, MatchesReferenceWithTheSameBitsOnEveryTargetAndThreadCount) {
  for (const Case& each : nsa_compress_grad::test_cases()) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(describe(each, dtype));
      Problem(each, dtype).run_everywhere();
    }
  }
}

TEST(NsaCompressGrad, WaysToSayTheSameSequences) {
  const auto same = [](const Case& shape, const std::vector<int64_t>& ends) {
    Problem first(shape, ACL_BF16), second({shape.tokens, 2, 48, 32, 16, ends}, ACL_BF16);
    first.run_and_check();
    second.run_and_check();
    second.expect_bits_of(first);
  };
  same({272, 2, 48, 32, 16, {128, 272}}, {0, 128, 272});
  same({272, 2, 48, 32, 16, {128, 272}}, {0, 0, 128, 128, 128, 272, 272});
  same({272, 2, 48, 32, 16, {}}, {272});
  same({272, 2, 48, 32, 16, {}}, {0, 272});
  same({272, 2, 48, 32, 16, {200}}, {200, 210, 231, 262});  // sequences shorter than a window

  const Problem whole({100, 2, 48, 32, 16, {}}, ACL_FLOAT16);
  whole.run_and_check();
  const std::vector<uint8_t> bits = whole.dx.bits();
  const IntArray empty({});
  char layout[] = "TND";
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnNsaCompressGradGetWorkspaceSize(
            whole.dy.handle(), whole.x.handle(), whole.w.handle(), empty.handle(), 32, 16, 0,
            layout, whole.dx.handle(), whole.dw.handle(), size, executor);
      },
      aclnnNsaCompressGrad);
  ASSERT_TRUE(outcome.ok()) << outcome;
  expect_same_bits("empty array", whole.dx.bits(), bits);
}

TEST(NsaCompressGrad, EmptyTensorsAndNoWindows) {
  const auto zeros = [](const Tensor& tensor) {
    for (const double value : tensor.values()) {
      EXPECT_EQ(value, 0.0);
      EXPECT_FALSE(std::signbit(value));
    }
  };
  for (const Case& shape : {Case{0, 2, 16, 32, 16, {}}, Case{31, 2, 48, 32, 16, {}},
                            Case{100, 2, 16, 64, 16, {50, 100}}, Case{100, 2, 16, 64, 16, {0, 0}},
                            Case{100, 0, 16, 32, 16, {}}, Case{100, 2, 0, 32, 16, {}},
                            Case{0, 0, 0, 32, 16, {0}}, Case{70000, 1, 16, 80000, 16, {}}}) {
    SCOPED_TRACE(describe(shape, ACL_BF16));
    Problem problem(shape, ACL_BF16);
    problem.x.fill_constant(std::numeric_limits<double>::quiet_NaN());  // no window reads it
    const Outcome outcome = problem.run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    zeros(problem.dx);
    zeros(problem.dw);
  }
}

TEST(NsaCompressGrad, NanInfSubnormalsAndSignedZerosFlowAsTheFormulaHasThem) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const aclDataType dtype : kFloats) {
    for (const double special : {inf, -inf, nan}) {
      for (const int64_t window : {32, 48, 336}) {
        const int64_t heads = window == 48 ? 1 : 2;  // weights of one head are dense
        const Case shape{400, heads, 80, window, 16, {390}};
        const auto token = static_cast<size_t>(heads) * 80;
        const auto place = [&](Tensor Problem::*tensor, size_t at) {
          Problem problem(shape, dtype);
          std::vector<double> values = (problem.*tensor).values();
          values[at] = special;
          values[values.size() / 2 + 1] = -special;
          (problem.*tensor).fill(values);
          problem.run_and_check();
        };
        place(&Problem::x, token * 37 + 5);
        place(&Problem::x, token * 395 + 5);  // a row no window covers
        place(&Problem::dy, 161);
        place(&Problem::w, 7);
      }
    }
    Problem zeros({200, 1, 32, 32, 16, {}}, dtype);
    zeros.dy.fill_constant(-0.0);
    zeros.run_and_check();
    for (const double value : zeros.dx.values()) EXPECT_FALSE(std::signbit(value));
    Problem overflow({200, 1, 32, 32, 16, {}}, dtype);
    overflow.dy.fill_constant(60000.0);
    overflow.x.fill_constant(-60000.0);
    overflow.run_and_check();
  }
  Problem tiny({200, 2, 48, 64, 16, {}}, ACL_BF16);
  tiny.dy.fill_uniform(3, -0x1p-133, 0x1p-126);
  tiny.run_and_check();
  Problem half({200, 2, 48, 64, 16, {}}, ACL_FLOAT16);
  half.dy.fill_uniform(3, -0x1p-24, 0x1p-14);
  half.run_and_check();
  for (const int64_t heads : {1, 2}) {
    Problem weights({200, heads, 48, 64, 16, {}}, ACL_BF16);
    weights.w.fill_uniform(5, -0x1p-133, 0x1p-126);
    weights.run_and_check();
  }
}

TEST(NsaCompressGrad, TheCallersFloatingPointModesHaveNoInfluence) {
  Problem problem({200, 2, 48, 64, 16, {}}, ACL_BF16);
  problem.dy.fill_uniform(3, -0x1p-133, 0x1p-120);
  ASSERT_TRUE(problem.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return problem.run_it(); },
                                       {&problem.dx, &problem.dw});
}

// Against central differences of L = sum(dy * forward(x, w)) in double.
TEST(NsaCompressGrad, FiniteDifferences) {
  const Case shape{66, 2, 16, 32, 16, {20, 66}};
  const Problem problem(shape, ACL_FLOAT16);
  ASSERT_TRUE(problem.run_it().ok());
  const std::vector<double> dy = problem.dy.values();
  const auto loss = [&](const std::vector<double>& x, const std::vector<double>& w) {
    double total = 0;
    for (size_t i = 0; i < dy.size(); ++i) {
      const size_t window = i / 32, head = i / 16 % 2;
      for (size_t j = 0; j < 32; ++j) {
        const size_t token = static_cast<size_t>(problem.starts[window]) + j;
        total += dy[i] * w[j * 2 + head] * x[token * 32 + i % 32];
      }
    }
    return total;
  };
  constexpr double kStep = 1e-3;
  const auto compare = [&](std::vector<double> at, const std::vector<double>& got, auto&& loss_at) {
    for (size_t i = 0; i < at.size(); i += 3) {
      const double middle = at[i];
      at[i] = middle + kStep;
      const double up = loss_at(at);
      at[i] = middle - kStep;
      const double slope = (up - loss_at(at)) / (2 * kStep);
      at[i] = middle;
      EXPECT_NEAR(got[i], slope, 1e-3 * (1 + std::abs(slope))) << "element " << i;
    }
  };
  const std::vector<double> x = problem.x.values(), w = problem.w.values();
  compare(x, problem.dx.values(), [&](const auto& at) { return loss(at, w); });
  compare(w, problem.dw.values(), [&](const auto& at) { return loss(x, at); });
}

}  // namespace
}  // namespace aclgrad::test
