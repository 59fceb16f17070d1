// SPDX-License-Identifier: Apache-2.0
// NsaCompressGrad through the C interface, against the formula in double. Over 500 lines, because
// all of it is written with the one problem below.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "ops/nsa_compress_grad/cases.h"
#include "ops/nsa_compress_grad/reference.h"
#include "runtime/services.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/same_bits.h"
#include "support/targets.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

using nsa_compress_grad::Case;
using nsa_compress_grad::window_starts;

constexpr aclDataType kFloats[] = {ACL_FLOAT16, ACL_BF16};

// Where the tensors' elements lie.
struct Views {
  Arrangement dy = Arrangement::kContiguous;
  Arrangement x = Arrangement::kContiguous;
  Arrangement w = Arrangement::kContiguous;
  Arrangement dx = Arrangement::kContiguous;
  Arrangement dw = Arrangement::kContiguous;
};

// The tensors of one problem with random data, and its two phases.
struct Problem {
  Problem(const Case& chosen, aclDataType dtype, const Views& views = {}, uint64_t seed = 1)
      : shape(chosen),
        starts(window_starts(chosen.tokens, chosen.window, chosen.step, chosen.ends)),
        dy({std::ssize(starts), chosen.heads, chosen.width}, dtype, views.dy),
        x({chosen.tokens, chosen.heads, chosen.width}, dtype, views.x),
        w({chosen.window, chosen.heads}, dtype, views.w),
        dx({chosen.tokens, chosen.heads, chosen.width}, dtype, views.dx),
        dw({chosen.window, chosen.heads}, dtype, views.dw) {
    dy.fill_normal(seed, 0.25);
    x.fill_normal(seed + 1, 0.25);
    w.fill_normal(seed + 2, 0.25);
  }

  Outcome run_it() const { return run_on(x, dx); }
  Outcome run_on(const Tensor& input, const Tensor& input_grad) const {
    const IntArray array(shape.ends);
    const aclIntArray* ends = shape.ends.empty() ? nullptr : array.handle();
    return run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnNsaCompressGradGetWorkspaceSize(
              dy.handle(), input.handle(), w.handle(), ends, shape.window, shape.step, 0, nullptr,
              input_grad.handle(), dw.handle(), size, executor);
        },
        aclnnNsaCompressGrad);
  }
  void expect_right() const {
    const auto exact = nsa_compress_grad::reference(
        static_cast<size_t>(shape.heads), static_cast<size_t>(shape.width),
        static_cast<size_t>(shape.window), starts, dy.values(), x.values(), w.values());
    const double windows = static_cast<double>(starts.size());
    expect_close("inputGradOut", dx, exact.dx, exact.dx_magnitude, windows);
    expect_close("weightGradOut", dw, exact.dw, exact.dw_magnitude,
                 windows * static_cast<double>(shape.width));
  }
  void run_and_check() const {
    const Outcome outcome = run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    expect_right();
  }
  // Right here; the same bits on every target and for every thread count, also where the sums of dw
  // show the order of the additions.
  void run_everywhere() {
    run_and_check();
    expect_same_bits_everywhere([&] { return run_it(); }, {&dx, &dw});
    x.fill_constant(1.0);
    w.fill_constant(1.0);
    const auto width = static_cast<size_t>(shape.width);
    const auto heads = static_cast<size_t>(shape.heads);
    dy.fill_cancelling(7, [&](size_t i) { return i / width % heads; });
    ASSERT_TRUE(run_it().ok());
    expect_same_bits_everywhere([&] { return run_it(); }, {&dx, &dw});
  }
  void expect_bits_of(const Problem& other) const {
    expect_same_bits("inputGradOut", dx.bits(), other.dx.bits());
    expect_same_bits("weightGradOut", dw.bits(), other.dw.bits());
  }

  Case shape;
  std::vector<int64_t> starts;
  Tensor dy, x, w, dx, dw;
};

std::string describe(const Case& shape, aclDataType dtype) {
  return std::string(dtype_short_name(dtype)) + "/" + std::to_string(shape.tokens) + "x" +
         std::to_string(shape.heads) + "x" + std::to_string(shape.width) + "-l" +
         std::to_string(shape.window) + "-d" + std::to_string(shape.step) + " sequences " +
         std::to_string(shape.ends.size());
}

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

// So many visits to a slab that a GPU's blocks have their sums of dw in shared memory several times
// over.
TEST(NsaCompressGrad, BlocksOfManyVisits) {
  for (const aclDataType dtype : kFloats) {
    Problem({3000, 2, 32, 1040, 528, {}}, dtype).run_and_check();
    Problem({9000, 1, 16, 32, 16, {}}, dtype).run_and_check();
  }
}

// More than half of a usual last-level cache: dx is written past the caches, straight away where
// all its rows are whole lines, or half ones of one head that follow each other, else through a
// buffer, a few heads at a time. One row stands for all of x, one for all of dy, so that only dx
// takes memory; and so a small problem, whose dx stays in the caches, has the rows that the first
// sequence of the large one must have.
TEST(NsaCompressGrad, OutputsThatBypassTheCaches) {
  constexpr int64_t kFirst = 4000;  // tokens of the first sequence
  struct Shape {
    int64_t heads, width, window;
  };
  // 11x48: ten heads leave together, visited five by five. 10x16: two heads make a line, of 3x16
  // they do not.
  for (const auto& [heads, width, window] : {Shape{2, 128, 32},
                                             {3, 48, 32},
                                             {11, 48, 48},
                                             {10, 16, 32},
                                             {3, 16, 64},
                                             {1, 16, 32},
                                             {5, 32, 32},
                                             {2, 272, 32}}) {
    // A GPU has no such way past its caches: an emulated one need not be kept busy for minutes.
    const int64_t elements = aclgrad_has_device_queues() ? 2400000 : 9300000;
    const int64_t tokens = elements / (heads * width);
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(std::to_string(heads) + "x" + std::to_string(width));
      const Dims weights = {window, heads};
      Tensor w(weights, dtype);
      w.fill_normal(2);
      Tensor row({1, heads, width}, dtype);
      const std::vector<double> row_values = row.fill_uniform(1, -1.0, 1.0).values();
      const auto repeated = [&, heads = heads, width = width](int64_t count) {
        Tensor tensor = Tensor::broadcast({count, heads, width}, dtype, {0});
        std::vector<double> values(static_cast<size_t>(tensor.numel()));
        for (size_t i = 0; i < values.size(); ++i) values[i] = row_values[i % row_values.size()];
        tensor.fill(values);
        return tensor;
      };
      const Tensor x = repeated(tokens), few_x = repeated(kFirst);
      const auto run_on = [&, window = window](const Tensor& from, const Tensor& dx,
                                               const Tensor& dw, const Dims& ends) {
        const int64_t rows = dx.dims()[0];
        const Tensor dy = repeated(std::ssize(window_starts(rows, window, 16, ends)));
        const IntArray array(ends);
        const Outcome outcome = run(
            [&](uint64_t* size, aclOpExecutor** executor) {
              return aclnnNsaCompressGradGetWorkspaceSize(dy.handle(), from.handle(), w.handle(),
                                                          array.handle(), window, 16, 0, nullptr,
                                                          dx.handle(), dw.handle(), size, executor);
            },
            aclnnNsaCompressGrad);
        ASSERT_TRUE(outcome.ok()) << outcome;
      };
      const auto run_into = [&](const Tensor& dx, const Tensor& dw, const Dims& ends) {
        run_on(dx.dims()[0] == tokens ? x : few_x, dx, dw, ends);
      };
      const Tensor small({kFirst, heads, width}, dtype), small_dw(weights, dtype);
      run_into(small, small_dw, {kFirst});
      const std::vector<uint8_t> first = small.bits();

      const Dims rows = {tokens, heads, width}, ends = {kFirst, tokens - 10};
      const Tensor other(rows, dtype, Arrangement::kOffset), other_dw(weights, dtype);
      run_into(other, other_dw, ends);
      const std::vector<uint8_t> dx_bits = other.bits(), dw_bits = other_dw.bits();
      expect_same_bits("inputGradOut of the first sequence",
                       {dx_bits.begin(), dx_bits.begin() + std::ssize(first)}, first);
      const Tensor padded(rows, dtype, Arrangement::kRowPadded);
      Tensor dw(weights, dtype);
      run_into(padded, dw, ends);
      expect_same_bits("padded inputGradOut", padded.bits(), dx_bits);
      expect_same_bits("weightGradOut", dw.bits(), dw_bits);
      const Tensor large(rows, dtype);
      for_each_target([&](const std::string& name) {
        run_into(large, dw, ends);
        expect_same_bits(name + " inputGradOut", large.bits(), dx_bits);
        expect_same_bits(name + " weightGradOut", dw.bits(), dw_bits);
      });
      if (width % 32 != 0 && !aclgrad_has_device_queues()) {  // half lines
        const Tensor reversed(rows, dtype, Arrangement::kReversedRows);
        run_into(reversed, dw, ends);
        expect_same_bits("reversed inputGradOut", reversed.bits(), dx_bits);
        Tensor same(rows, dtype);
        same.fill(x.values());
        dw.poison();
        run_on(same, same, dw, ends);
        expect_same_bits("inputGradOut in place", same.bits(), dx_bits);
        expect_same_bits("weightGradOut in place", dw.bits(), dw_bits);
        EXPECT_TRUE(reversed.untouched_outside() && same.untouched_outside());
      }
      EXPECT_TRUE(large.untouched_outside() && padded.untouched_outside() &&
                  other.untouched_outside());
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

TEST(NsaCompressGrad, EveryStridedViewGivesTheSameBits) {
  for (const Case& shape : {Case{131, 3, 48, 32, 16, {67, 130}}, Case{200, 2, 16, 160, 16, {}}}) {
    for (const aclDataType dtype : kFloats) {
      Problem plain(shape, dtype);
      plain.run_and_check();
      for (const Arrangement in : kInputArrangements) {
        for (const Arrangement out : kOutputArrangements) {
          if (in != out && out != Arrangement::kContiguous && in != Arrangement::kContiguous) {
            continue;
          }
          SCOPED_TRACE(std::string(arrangement_name(in)) + " to " + arrangement_name(out));
          const Problem view(shape, dtype, {in, in, in, out, out});
          view.run_and_check();
          if (in != Arrangement::kBroadcast) view.expect_bits_of(plain);
        }
      }
    }
  }
}

TEST(NsaCompressGrad, BroadcastHeadsAndWeights) {
  const Case shape{150, 4, 32, 48, 16, {}};
  Problem problem(shape, ACL_BF16);
  const auto one_head = [&](Tensor& tensor, size_t dim) {
    Tensor repeated = Tensor::broadcast(tensor.dims(), ACL_BF16, {dim});
    repeated.fill_normal(9);
    return repeated;
  };
  const Tensor dy = one_head(problem.dy, 1), x = one_head(problem.x, 1), w = one_head(problem.w, 0);
  Problem dense(shape, ACL_BF16);
  dense.dy.fill(dy.values());
  dense.x.fill(x.values());
  dense.w.fill(w.values());
  dense.run_and_check();
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnNsaCompressGradGetWorkspaceSize(dy.handle(), x.handle(), w.handle(), nullptr,
                                                    48, 16, 0, nullptr, problem.dx.handle(),
                                                    problem.dw.handle(), size, executor);
      },
      aclnnNsaCompressGrad);
  ASSERT_TRUE(outcome.ok()) << outcome;
  problem.expect_bits_of(dense);
}

// Workspace is a function of the shape; strided tokens and heads need no more of it: nothing is
// packed.
TEST(NsaCompressGrad, RowsAreUsedInPlace) {
  const Case shape{500, 3, 64, 32, 16, {}};
  const uint64_t contiguous = Problem(shape, ACL_BF16).run_it().workspace_size;
  for (const Arrangement in : {Arrangement::kOffset, Arrangement::kRowPadded,
                               Arrangement::kReversedRows, Arrangement::kBroadcast}) {
    const Arrangement out = in == Arrangement::kBroadcast ? Arrangement::kRowPadded : in;
    const Outcome outcome = Problem(shape, ACL_BF16, {in, in, in, out, out}).run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    EXPECT_EQ(outcome.workspace_size, contiguous) << arrangement_name(in);
  }
}

// Phase one only: the tensors have no addresses yet.
TEST(NsaCompressGrad, WorkspaceOfLargeProblemsIsSmall) {
  for (const Case& shape : {Case{65536, 4, 128, 32, 16, {}}, Case{65536, 4, 128, 128, 16, {}},
                            Case{1 << 20, 1, 64, 64, 32, {}}, Case{1 << 22, 1, 16, 1024, 16, {}},
                            Case{2048, 128, 192, 32, 16, {}}}) {
    const int64_t windows = (shape.tokens - shape.window) / shape.step + 1;
    const auto made = [](const Dims& dims) {
      return aclCreateTensor(dims.data(), dims.size(), ACL_BF16, nullptr, 0, ACL_FORMAT_ND, nullptr,
                             0, nullptr);
    };
    const Dims rows = {shape.tokens, shape.heads, shape.width},
               weights = {shape.window, shape.heads};
    aclTensor* tensors[] = {made({windows, shape.heads, shape.width}), made(rows), made(weights),
                            made(rows), made(weights)};
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(aclnnNsaCompressGradGetWorkspaceSize(tensors[0], tensors[1], tensors[2], nullptr,
                                                   shape.window, shape.step, 0, nullptr, tensors[3],
                                                   tensors[4], &size, &executor),
              0)
        << take_message();
    const double operands =
        2.0 * static_cast<double>((2 * shape.tokens + windows) * shape.heads * shape.width);
    EXPECT_LE(static_cast<double>(size), 0.05 * operands) << describe(shape, ACL_BF16);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
    for (aclTensor* tensor : tensors) EXPECT_EQ(aclDestroyTensor(tensor), 0);
  }
}

TEST(NsaCompressGrad, InPlaceGivesTheSameBits) {
  for (const Case& shape : {Case{131, 3, 48, 32, 16, {67, 130}}, Case{300, 2, 16, 64, 16, {}},
                            Case{300, 2, 272, 64, 16, {}}, Case{700, 1, 32, 400, 16, {}},
                            Case{2400, 1, 128, 32, 16, {1000, 2300}}}) {
    for (const Arrangement view :
         {Arrangement::kContiguous, Arrangement::kRowPadded, Arrangement::kTransposed}) {
      Problem apart(shape, ACL_FLOAT16);
      ASSERT_TRUE(apart.run_it().ok());
      Problem same(shape, ACL_FLOAT16, {view, view, view, view, view});
      const std::vector<uint8_t> input = same.x.bits();
      const auto run_again = [&](const auto&) {
        same.x.fill_bits(input);
        const Outcome outcome = same.run_on(same.x, same.x);
        ASSERT_TRUE(outcome.ok()) << outcome;
        expect_same_bits("inputGradOut", same.x.bits(), apart.dx.bits());
        expect_same_bits("weightGradOut", same.dw.bits(), apart.dw.bits());
        EXPECT_TRUE(same.x.untouched_outside());
      };
      for_each_target(run_again);
      if (shape.tokens > 1000) for_each_thread_count(run_again);  // has several slabs
    }
  }
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
        const Case shape{400, 2, 80, window, 16, {390}};
        const auto place = [&](Tensor Problem::*tensor, size_t at) {
          Problem problem(shape, dtype);
          std::vector<double> values = (problem.*tensor).values();
          values[at] = special;
          values[values.size() / 2 + 1] = -special;
          (problem.*tensor).fill(values);
          problem.run_and_check();
        };
        place(&Problem::x, 160 * 37 + 5);
        place(&Problem::x, 160 * 395 + 5);  // a row no window covers
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
}

TEST(NsaCompressGrad, AMillionTermsAndConstantsHoldTheTolerance) {
  for (const aclDataType dtype : kFloats) {
    Problem problem({1000000, 1, 16, 32, 16, {}}, dtype);  // 62500 windows, 16 terms in each
    if (dtype == ACL_BF16) problem.run_and_check();
    Problem wide({2000, 1, 1024, 64, 16, {}}, dtype);
    Problem chains({6000, 1, 16, 4096, 16, {}}, dtype);  // 256 windows a token
    for (Problem* each : {&problem, &wide, &chains}) {
      each->dy.fill_constant(0.1);
      each->x.fill_constant(0.1);
      each->w.fill_constant(0.1);
      each->run_and_check();
    }
  }
}

TEST(NsaCompressGrad, AHundredThousandSequences) {
  Random random(5);
  std::vector<int64_t> ends(100000);
  int64_t end = 0;
  for (int64_t& each : ends) {
    each = end += random.chance(0.1) ? random.integer(30, 50) : random.integer(0, 3);
  }
  Problem problem({end + 3, 1, 16, 32, 16, ends}, ACL_BF16);
  ASSERT_GT(problem.starts.size(), 8000u);
  problem.run_and_check();
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
