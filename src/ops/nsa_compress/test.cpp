// SPDX-License-Identifier: Apache-2.0
// NsaCompress through the C interface, against the formula in double.
#include <gtest/gtest.h>

#include <cfenv>
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
#include "support/targets.h"
#include "support/tensor.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace aclgrad::test {
namespace {

using nsa_compress::Case;
using nsa_compress::window_starts;

constexpr aclDataType kFloats[] = {ACL_FLOAT16, ACL_BF16};
constexpr int kNull = 161001;
constexpr int kInvalid = 161002;

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
  // Right here; the same bits on every target and for every thread count.
  void run_everywhere() {
    run_and_check();
    const std::vector<uint8_t> bits = y.bits();
    const auto run_again = [&](const std::string& name) {
      y.poison();
      ASSERT_TRUE(run_it().ok());
      expect_same_bits(name, y.bits(), bits);
    };
    for_each_target(run_again);
    for_each_thread_count([&](int threads) { run_again(std::to_string(threads) + " threads"); });
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
    for (int token = 0; token < 88; ++token) x.insert(x.end(), 16, token / 16);
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
  const Dims rows = {16 * 36000, 2, 128}, results = {36000, 2, 128}, weights = {16, 2};
  const IntArray ends({16 * 36000});
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
  const std::vector<uint8_t> bits = problem.y.bits();
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    problem.y.poison();
    std::fesetround(mode);
    const Outcome outcome = problem.run_it();
    EXPECT_EQ(std::fegetround(), mode);
    std::fesetround(FE_TONEAREST);
    ASSERT_TRUE(outcome.ok());
    expect_same_bits("rounding", problem.y.bits(), bits);
  }
#if defined(__SSE__)
  problem.y.poison();
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040u);  // flush to zero, subnormals are zero
  const Outcome outcome = problem.run_it();
  EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u);
  _mm_setcsr(before);
  ASSERT_TRUE(outcome.ok());
  expect_same_bits("flush to zero", problem.y.bits(), bits);
#endif
}

// A valid call, changed by a row of the README's table of refusals. The tensors are copied handles.
struct Call {
  Tensor x{{100, 2, 16}, ACL_FLOAT16}, w{{32, 2}, ACL_FLOAT16}, y{{4, 2, 16}, ACL_FLOAT16};
  const aclTensor *x_at = x.handle(), *w_at = w.handle(), *y_at = y.handle();
  std::vector<int64_t> ends = {48, 50, 100};
  int64_t window = 32, step = 16, type = 0;
  std::string layout = "TND";

  aclnnStatus plan(const aclIntArray* array, uint64_t* size, aclOpExecutor** executor) {
    return aclnnNsaCompressGetWorkspaceSize(x_at, w_at, array, layout.data(), window, step, type,
                                            const_cast<aclTensor*>(y_at), size, executor);
  }
  void refused(int status, std::initializer_list<std::string> substrings) {
    const IntArray array(ends);
    const auto planned = [&](uint64_t* size, aclOpExecutor** executor) {
      return plan(array.handle(), size, executor);
    };
    expect_refused(planned, status, substrings);
    if (status != 0) expect_refused(planned, status, {"aclnnNsaCompress: "});
  }
};

using Member = const aclTensor* Call::*;
constexpr std::pair<Member, const char*> kMembers[] = {
    {&Call::x_at, "input"}, {&Call::w_at, "weight"}, {&Call::y_at, "output"}};

void refused_with(Member member, const Tensor& tensor, std::initializer_list<std::string> message) {
  Call call;
  call.*member = tensor.handle();
  call.refused(kInvalid, message);
}

TEST(NsaCompress, ErrorTableNull) {
  Call().refused(0, {});
  for (const auto& [member, name] : kMembers) {
    Call call;
    call.*member = nullptr;
    call.type = 7;  // checked later
    call.refused(kNull, {name, "null"});
  }
  Call call;
  call.type = 7;
  const IntArray ends(call.ends);
  uint64_t size = 7;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(call.plan(ends.handle(), nullptr, &executor), kNull);
  expect_message(take_message(), {"aclnnNsaCompress: ", "workspaceSize", "null"});
  EXPECT_EQ(call.plan(ends.handle(), &size, nullptr), kNull);
  expect_message(take_message(), {"aclnnNsaCompress: ", "executor", "null"});
  EXPECT_EQ(executor, nullptr);
  EXPECT_EQ(size, 7u);
}

TEST(NsaCompress, ErrorTableHandles) {
  const IntArray array({1});
  for (const auto& [member, name] : kMembers) {
    Call foreign;
    foreign.*member = reinterpret_cast<const aclTensor*>(array.handle());
    foreign.type = 7;
    foreign.refused(kInvalid, {name, "aclIntArray"});
    Tensor gone({100, 2, 16}, ACL_FLOAT16);
    Call dead;
    dead.*member = gone.handle();
    gone.destroy_handle();
    dead.refused(kInvalid, {name, "destroyed"});
  }
  Call call;
  expect_refused(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return call.plan(reinterpret_cast<const aclIntArray*>(call.w_at), size, executor);
      },
      kInvalid, {"aclnnNsaCompress: ", "actSeqLenOptional", "aclTensor"});
}

TEST(NsaCompress, ErrorTableDtypesAndFormats) {
  for (const aclDataType dtype : {ACL_FLOAT, ACL_DOUBLE, ACL_INT16}) {
    refused_with(&Call::x_at, Tensor({100, 2, 16}, dtype),
                 {"input", dtype_name(dtype), "FLOAT16", "BFLOAT16"});
  }
  for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
    refused_with(&Call::w_at, Tensor({32, 2}, dtype), {"weight", dtype_name(dtype), "FLOAT16"});
    refused_with(&Call::y_at, Tensor({4, 2, 16}, dtype), {"output", dtype_name(dtype)});
  }
  const Call valid;
  const Tensor* const tensors[] = {&valid.x, &valid.w, &valid.y};
  const auto formatted = [&](size_t index, aclFormat format, int status) {
    Call call;
    aclTensor* other = tensors[index]->make_handle(format);
    call.*kMembers[index].first = other;
    call.refused(
        status, status == 0 ? std::initializer_list<std::string>{}
                            : std::initializer_list<std::string>{kMembers[index].second, "format"});
    EXPECT_EQ(aclDestroyTensor(other), 0);
  };
  for (size_t i = 0; i < 3; ++i) {
    for (const aclFormat format : {ACL_FORMAT_NC1HWC0, ACL_FORMAT_FRACTAL_NZ}) {
      formatted(i, format, kInvalid);
    }
    for (const aclFormat format : {ACL_FORMAT_NCL, ACL_FORMAT_NCHW, ACL_FORMAT_UNDEFINED}) {
      formatted(i, format, 0);
    }
  }
}

TEST(NsaCompress, ErrorTableRanksAndShapes) {
  refused_with(&Call::x_at, Tensor({100, 2, 16, 1}, ACL_FLOAT16), {"input", "4 dim", "3"});
  refused_with(&Call::w_at, Tensor({32, 2, 1}, ACL_FLOAT16), {"weight", "3 dim", "2"});
  refused_with(&Call::y_at, Tensor({4, 32}, ACL_FLOAT16), {"output", "2 dim", "3"});
  refused_with(&Call::x_at, Tensor({-100, 2, 16}, ACL_FLOAT16), {"input", "-100"});
  refused_with(&Call::x_at, Tensor({100, 129, 16}, ACL_FLOAT16), {"input", "[100,129,16]", "128"});
  refused_with(&Call::x_at, Tensor({100, 2, 24}, ACL_FLOAT16), {"input", "[100,2,24]", "16"});
  refused_with(&Call::x_at, Tensor({100, 2, 272}, ACL_FLOAT16), {"input", "[100,2,272]", "256"});
  refused_with(&Call::w_at, Tensor({32, 3}, ACL_FLOAT16), {"weight", "[32,3]", "input"});
  refused_with(&Call::y_at, Tensor({4, 3, 16}, ACL_FLOAT16), {"output", "[4,3,16]", "input"});
  refused_with(&Call::y_at, Tensor({4, 2, 32}, ACL_FLOAT16), {"output", "[4,2,32]", "input"});
}

TEST(NsaCompress, ErrorTableAttributesAndSequences) {
  const auto refused = [](auto member, auto value, std::initializer_list<std::string> message) {
    Call call;
    call.*member = value;
    call.refused(kInvalid, message);
  };
  for (const int64_t wrong : {0, -16, 24, 17, 1}) {
    const std::string text = "is " + std::to_string(wrong);
    refused(&Call::window, wrong, {"compressBlockSize", text, "multiple of 16"});
    refused(&Call::step, wrong, {"compressStride", text, "multiple of 16"});
  }
  refused(&Call::step, 48, {"compressBlockSize is 32", "compressStride 48"});
  refused(&Call::window, 144, {"compressBlockSize is 144", "at most 128"});
  for (const int64_t wrong : {1, 2, -1}) {
    refused(&Call::type, wrong, {"actSeqLenType", std::to_string(wrong), "only 0 is supported"});
  }
  for (const char* wrong : {"BSND", "tnd", "", "TN", "TND "}) {
    refused(&Call::layout, wrong, {"layoutOptional", wrong, "TND"});
  }
  using Ends = std::vector<int64_t>;
  refused(&Call::ends, Ends{}, {"actSeqLenOptional", "empty"});
  Call without;
  expect_refused([&](uint64_t* size,
                     aclOpExecutor** executor) { return without.plan(nullptr, size, executor); },
                 kInvalid, {"aclnnNsaCompress: actSeqLenOptional", "null"});
  refused(&Call::ends, Ends{-1, 100}, {"actSeqLenOptional[0] is -1", "at least 0"});
  refused(&Call::ends, Ends{50, 48, 100}, {"actSeqLenOptional[1] is 48", "at least 50"});
  refused(&Call::ends, Ends{48, 101}, {"actSeqLenOptional[1] is 101", "at most 100"});
  refused(&Call::window, 48, {"weight", "[32,2]", "[48,2]", "compressBlockSize"});
  refused(&Call::ends, Ends{100}, {"output", "[4,2,16]", "[5,2,16]", "windows"});
  refused(&Call::ends, Ends{48}, {"output", "[4,2,16]", "[2,2,16]", "windows"});
}

TEST(NsaCompress, ErrorTableSizesAndOverlap) {
  const int64_t huge[] = {int64_t{1} << 59, 2, 16}, strides[] = {0, 0, 0};
  const aclTensor* x =
      aclCreateTensor(huge, 3, ACL_FLOAT16, strides, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
  Call sizes;
  sizes.x_at = x;
  sizes.refused(kInvalid, {"input", std::to_string(huge[0])});
  EXPECT_EQ(aclDestroyTensor(x), 0);
  refused_with(&Call::y_at, Tensor({4, 2, 16}, ACL_FLOAT16, Dims{16, 0, 1}), {"output"});
  const Tensor memory({100, 2, 16}, ACL_FLOAT16);  // y in the middle of x
  const int64_t dims[] = {4, 2, 16}, dense[] = {32, 16, 1};
  aclTensor* inside = aclCreateTensor(dims, 3, ACL_FLOAT16, dense, 320, ACL_FORMAT_ND, nullptr, 0,
                                      memory.address());
  Call overlap;
  overlap.x_at = memory.handle();
  overlap.y_at = inside;
  overlap.refused(kInvalid, {"output", "input"});
  EXPECT_EQ(aclDestroyTensor(inside), 0);
}

}  // namespace
}  // namespace aclgrad::test
