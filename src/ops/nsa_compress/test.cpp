// SPDX-License-Identifier: Apache-2.0
// NsaCompress through the C interface, against the formula in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>

#include "aclnnop/aclnn_nsa_compress.h"
#include "ops/nsa_compress/cases.h"
#include "ops/nsa_compress/reference.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/same_bits.h"
#include "support/targets.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

using nsa_compress::Case;
using nsa_compress::window_starts;

constexpr aclDataType kFloats[] = {ACL_FLOAT16, ACL_BF16};

// Where the tensors' elements lie.
struct Views {
  Arrangement x = Arrangement::kContiguous;
  Arrangement w = Arrangement::kContiguous;
  Arrangement y = Arrangement::kContiguous;
};

// The tensors of one problem with random data, and its two phases.
struct Problem {
  Problem(const Case& chosen, aclDataType dtype, const Views& views = {}, uint64_t seed = 1)
      : shape(chosen),
        starts(window_starts(chosen.window, chosen.step, chosen.ends)),
        x({chosen.tokens, chosen.heads, chosen.width}, dtype, views.x),
        w({chosen.window, chosen.heads}, dtype, views.w),
        y({std::ssize(starts), chosen.heads, chosen.width}, dtype, views.y) {
    x.fill_normal(seed, 0.25);
    w.fill_normal(seed + 1, 0.25);
  }

  Outcome run_it() const { return run_on(x, w); }
  Outcome run_on(const Tensor& input, const Tensor& weight) const {
    const IntArray ends(shape.ends);
    char layout[] = "TND";
    return run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnNsaCompressGetWorkspaceSize(input.handle(), weight.handle(), ends.handle(),
                                                  layout, shape.window, shape.step, 0, y.handle(),
                                                  size, executor);
        },
        aclnnNsaCompress);
  }
  // Half a unit in the last place, where a whole one is promised.
  void expect_right() const {
    const auto exact =
        nsa_compress::reference(static_cast<size_t>(shape.heads), static_cast<size_t>(shape.width),
                                static_cast<size_t>(shape.window), starts, x.values(), w.values());
    expect_close("output", y, exact.y, exact.y_magnitude, static_cast<double>(shape.window));
  }
  void run_and_check() const {
    const Outcome outcome = run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    expect_right();
  }
  // Right here; the same bits on every target and for every thread count, also where the sums show
  // the order of the additions: pairs that cancel lie where windows take or leave both.
  void run_everywhere() {
    run_and_check();
    expect_same_bits_everywhere([&] { return run_it(); }, {&y});
    w.fill_constant(1.0);
    const auto row = static_cast<size_t>(shape.heads * shape.width);
    const auto step = static_cast<size_t>(shape.step);
    x.fill_cancelling(7, [&](size_t i) { return i / row / step * row + i % row; });
    ASSERT_TRUE(run_it().ok());
    expect_same_bits_everywhere([&] { return run_it(); }, {&y});
  }
  void expect_bits_of(const Problem& other) const {
    expect_same_bits("output", y.bits(), other.y.bits());
  }

  Case shape;
  std::vector<int64_t> starts;
  Tensor x, w, y;
};

std::string describe(const Case& shape, aclDataType dtype) {
  return std::string(dtype_short_name(dtype)) + "/" + std::to_string(shape.tokens) + "x" +
         std::to_string(shape.heads) + "x" + std::to_string(shape.width) + "-l" +
         std::to_string(shape.window) + "-d" + std::to_string(shape.step) + " sequences " +
         std::to_string(shape.ends.size());
}

// Weights count the tokens of a window; each token's elements are its number.
TEST(NsaCompress, DocumentedExample) {
  for (const aclDataType dtype : kFloats) {
    Problem problem({88, 1, 16, 32, 16, {48, 88}}, dtype);
    std::vector<double> x;
    for (int token = 0; token < 88; ++token) {
      const int window = token / 16;
      x.insert(x.end(), 16, window);
    }
    problem.x.fill(x);
    problem.w.fill_constant(1.0);
    ASSERT_TRUE(problem.run_it().ok());
    const std::vector<double> sums = {16, 48, 16 * 3 + 16 * 4};  // windows at tokens 0, 16, 48
    ASSERT_EQ(problem.y.values().size(), 3 * 16u);
    for (size_t i = 0; i < 48; ++i) EXPECT_EQ(problem.y.values()[i], sums[i / 16]) << i;
  }
}

TEST(NsaCompress, MatchesReferenceWithTheSameBitsOnEveryTargetAndThreadCount) {
  for (const Case& each : nsa_compress::test_cases()) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(describe(each, dtype));
      Problem(each, dtype).run_everywhere();
    }
  }
}

// More than half of a usual last-level cache: y is written past the caches where its rows are
// aligned. One row stands for all of x, so that only y takes memory.
TEST(NsaCompress, OutputsThatBypassTheCaches) {
  const Dims rows = {576000, 2, 128}, results = {36000, 2, 128}, weights = {16, 2};
  const IntArray ends({576000});
  for (const aclDataType dtype : kFloats) {
    Tensor x = Tensor::broadcast(rows, dtype, {0});
    x.fill_uniform(1, -1.0, 1.0);
    Tensor w(weights, dtype);
    w.fill_normal(2);
    const Tensor ordinary(results, dtype, Arrangement::kOffset), large(results, dtype);
    const auto run_into = [&](const Tensor& y) {
      const Outcome outcome = run(
          [&](uint64_t* size, aclOpExecutor** executor) {
            return aclnnNsaCompressGetWorkspaceSize(x.handle(), w.handle(), ends.handle(), nullptr,
                                                    16, 16, 0, y.handle(), size, executor);
          },
          aclnnNsaCompress);
      ASSERT_TRUE(outcome.ok()) << outcome;
    };
    run_into(ordinary);
    const std::vector<uint8_t> bits = ordinary.bits();
    for_each_target([&](const std::string& name) {
      if (name == "SCALAR" || (name != "AVX3" && dtype == ACL_FLOAT16)) return;  // slow
      run_into(large);
      expect_same_bits(name, large.bits(), bits);
    });
  }
}

TEST(NsaCompress, WaysToSayTheSameSequences) {
  const auto same = [](const Case& shape, const std::vector<int64_t>& ends) {
    const Problem first(shape, ACL_BF16), second({shape.tokens, 2, 48, 32, 16, ends}, ACL_BF16);
    first.run_and_check();
    second.run_and_check();
    second.expect_bits_of(first);
  };
  same({272, 2, 48, 32, 16, {128, 272}}, {0, 128, 272});
  same({272, 2, 48, 32, 16, {128, 272}}, {0, 0, 128, 128, 128, 272, 272});
  same({272, 2, 48, 32, 16, {272}}, {0, 272});
  same({272, 2, 48, 32, 16, {200}}, {200, 210, 231, 262});  // sequences shorter than a window
}

TEST(NsaCompress, EveryStridedViewGivesTheSameBits) {
  const Case shape{131, 3, 48, 48, 16, {67, 130}};
  for (const aclDataType dtype : kFloats) {
    const Problem plain(shape, dtype);
    plain.run_and_check();
    for (const Arrangement in : kInputArrangements) {
      for (const Arrangement out : kOutputArrangements) {
        SCOPED_TRACE(std::string(arrangement_name(in)) + " to " + arrangement_name(out));
        const Problem view(shape, dtype, {in, in, out});
        view.run_and_check();
        if (in != Arrangement::kBroadcast) view.expect_bits_of(plain);
      }
    }
  }
}

TEST(NsaCompress, BroadcastHeadsAndWeights) {
  const Case shape{150, 4, 32, 48, 16, {150}};
  const Problem problem(shape, ACL_BF16);
  const auto repeated = [&](const Tensor& tensor, size_t dim) {
    Tensor out = Tensor::broadcast(tensor.dims(), ACL_BF16, {dim});
    out.fill_normal(9);
    return out;
  };
  const Tensor x = repeated(problem.x, 1), w = repeated(problem.w, 0);
  Problem dense(shape, ACL_BF16);
  dense.x.fill(x.values());
  dense.w.fill(w.values());
  dense.run_and_check();
  ASSERT_TRUE(problem.run_on(x, w).ok());
  problem.expect_bits_of(dense);
}

// Strided tokens and heads are used where they lie: nothing is packed, no workspace is needed.
TEST(NsaCompress, RowsAreUsedInPlace) {
  const Case shape{500, 3, 64, 32, 16, {500}};
  for (const Arrangement in :
       {Arrangement::kContiguous, Arrangement::kOffset, Arrangement::kRowPadded,
        Arrangement::kReversedRows, Arrangement::kBroadcast}) {
    const Arrangement out = in == Arrangement::kBroadcast ? Arrangement::kRowPadded : in;
    const Outcome outcome = Problem(shape, ACL_BF16, {in, in, out}).run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    EXPECT_EQ(outcome.workspace_size, 0u) << arrangement_name(in);
  }
}

// Nothing to write, whatever the rows that no window covers hold.
TEST(NsaCompress, EmptyTensorsAndNoWindows) {
  for (const Case& shape : {Case{0, 2, 16, 32, 16, {0}}, Case{31, 2, 48, 32, 16, {31}},
                            Case{100, 2, 16, 64, 16, {50, 100}}, Case{100, 2, 16, 64, 16, {0, 0}},
                            Case{100, 0, 16, 32, 16, {100}}, Case{100, 2, 0, 32, 16, {100}},
                            Case{0, 0, 0, 32, 16, {0}}}) {
    SCOPED_TRACE(describe(shape, ACL_BF16));
    const Outcome outcome = Problem(shape, ACL_BF16).run_it();
    EXPECT_TRUE(outcome.ok()) << outcome;
  }
}

TEST(NsaCompress, NanInfSubnormalsAndSignedZerosFlowAsTheFormulaHasThem) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const aclDataType dtype : kFloats) {
    for (const double special : {inf, -inf, nan}) {
      for (const int64_t window : {32, 48, 128}) {
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
        place(&Problem::w, 7);
      }
    }
    Problem zeros({200, 1, 32, 32, 16, {200}}, dtype);
    zeros.x.fill_constant(-0.0);
    zeros.run_and_check();
    for (const double value : zeros.y.values()) EXPECT_FALSE(std::signbit(value));
    Problem overflow({200, 1, 32, 32, 16, {200}}, dtype);
    overflow.w.fill_constant(60000.0);
    overflow.x.fill_constant(-60000.0);
    overflow.run_and_check();
  }
  Problem tiny({200, 2, 48, 64, 16, {200}}, ACL_BF16);
  tiny.x.fill_uniform(3, -0x1p-133, 0x1p-126);
  tiny.run_and_check();
  Problem half({200, 2, 48, 64, 16, {200}}, ACL_FLOAT16);
  half.x.fill_uniform(3, -0x1p-24, 0x1p-14);
  half.run_and_check();
  for (const int64_t heads : {1, 2}) {
    Problem weights({200, heads, 48, 64, 16, {200}}, ACL_BF16);
    weights.w.fill_uniform(5, -0x1p-133, 0x1p-126);
    weights.run_and_check();
  }
}

TEST(NsaCompress, LongInputsAndConstantsHoldTheTolerance) {
  for (const aclDataType dtype : kFloats) {
    Problem problem({100000, 1, 16, 128, 16, {100000}}, dtype);
    problem.run_and_check();
    problem.x.fill_constant(0.1);
    problem.w.fill_constant(0.1);
    problem.run_and_check();
  }
}

TEST(NsaCompress, AHundredThousandSequences) {
  Random random(5);
  std::vector<int64_t> ends(100000);
  int64_t end = 0;
  for (int64_t& each : ends) {
    each = end += random.chance(0.1) ? random.integer(30, 50) : random.integer(0, 3);
  }
  const Problem problem({end + 3, 1, 16, 32, 16, ends}, ACL_BF16);
  ASSERT_GT(problem.starts.size(), 8000u);
  problem.run_and_check();
}

TEST(NsaCompress, TheCallersFloatingPointModesHaveNoInfluence) {
  Problem problem({200, 2, 48, 64, 16, {200}}, ACL_BF16);
  problem.x.fill_uniform(3, -0x1p-133, 0x1p-120);
  ASSERT_TRUE(problem.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return problem.run_it(); }, {&problem.y});
}

}  // namespace
}  // namespace aclgrad::test
