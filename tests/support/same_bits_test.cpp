// SPDX-License-Identifier: Apache-2.0
// The shared judges of operators: they must see what they are there for.
#include "support/same_bits.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cfenv>

#include "support/error_rows.h"

namespace aclgrad::test {
namespace {

// Failures inside fn(), which are none of this test.
template <class Fn>
int failures_of(Fn&& fn) {
  ::testing::TestPartResultArray results;
  const ::testing::ScopedFakeTestPartResultReporter reporter(
      ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
  fn();
  return results.size();
}

Outcome success() {
  Outcome outcome;
  outcome.phase_one = outcome.phase_two = outcome.synchronise = 0;
  return outcome;
}

TEST(SameBits, SeesAnOutputThatChangesOrIsNotWritten) {
  Tensor first({3}, ACL_FLOAT), second({2}, ACL_FLOAT);
  first.fill({1, 2, 3});
  second.fill({4, 5});
  double value = 5;
  const auto run = [&] {
    first.fill({1, 2, 3});
    second.fill({4, value});
    return success();
  };
  const auto everywhere = [&] { expect_same_bits_everywhere(run, {&first, &second}); };
  const auto in_modes = [&] { expect_same_bits_in_every_float_mode(run, {&first, &second}); };
  EXPECT_EQ(failures_of(everywhere), 0);
  EXPECT_EQ(failures_of(in_modes), 0);
  value = 6;
  EXPECT_GT(failures_of(everywhere), 0);
  second.fill({4, 5});
  EXPECT_GT(failures_of(in_modes), 0);
  first.fill({1, 2, 3});
  EXPECT_GT(failures_of([&] { expect_same_bits_everywhere([] { return success(); }, {&first}); }),
            0);
}

TEST(SameBits, SeesWhatFollowsOrChangesTheModes) {
  Tensor out({1}, ACL_FLOAT);
  const auto third = [&] {
    volatile float one = 1.0f;
    out.fill({static_cast<double>(one / 3.0f)});
    return success();
  };
  third();
  EXPECT_GT(failures_of([&] { expect_same_bits_in_every_float_mode(third, {&out}); }), 0);
  const auto reset = [&] {
    std::fesetround(FE_TONEAREST);
    return third();
  };
  EXPECT_GT(failures_of([&] { expect_same_bits_in_every_float_mode(reset, {&out}); }), 0);
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

// A function that refuses every call, and does not say why.
struct Call {
  static constexpr const char* kOp = "aclnnNothing";
  Tensor x{{2}, ACL_FLOAT};
  const aclTensor* x_at = x.handle();

  aclnnStatus plan(uint64_t*, aclOpExecutor**) const { return kInvalid; }
};
constexpr TensorParameter<Call> kParameters[] = {{"x", &Call::x_at, &Call::x}};

TEST(ErrorRows, SeeAWrongStatusAndAMissingMessage) {
  EXPECT_GT(failures_of([] { expect_nulls_refused(kParameters); }), 0);
  EXPECT_GT(failures_of([] { expect_wrong_handles_refused(kParameters); }), 0);
  EXPECT_GT(failures_of([] { expect_private_formats_refused(kParameters); }), 0);
  EXPECT_GT(failures_of([] { refused_with(&Call::x_at, Tensor({3}, ACL_FLOAT), {"x"}); }), 0);
  EXPECT_EQ(failures_of([] { expect_status(Call(), kInvalid, {}); }), 1) << "names no function";
}

}  // namespace
}  // namespace aclgrad::test
