// SPDX-License-Identifier: Apache-2.0
// Plans that are taken again: which arguments are the same, and when the operator's part of phase
// one is left out.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "scale_add.h"
#include "support/tensor.h"
#include "tensor/call_key.h"

namespace aclgrad::test {
namespace {

bool same(const CallKey& a, const CallKey& b) {
  return a.known && b.known && a.count == b.count &&
         std::equal(a.words.begin(), a.words.begin() + a.count, b.words.begin());
}

TEST(CallKey, HoldsWhatTheArgumentsHold) {
  const Tensor x({4}, ACL_FLOAT), y({4}, ACL_FLOAT);
  const IntArray array({4});
  EXPECT_TRUE(same(CallKey(x.handle(), 0.5, 3, true), CallKey(x.handle(), 0.5, 3, true)));
  EXPECT_FALSE(same(CallKey(x.handle()), CallKey(y.handle())));
  EXPECT_FALSE(same(CallKey(0.0), CallKey(-0.0)));
  EXPECT_FALSE(same(CallKey(int64_t{1}), CallKey(int64_t{1} << 32)));
  EXPECT_FALSE(same(CallKey(true), CallKey(false)));
  const CallKey key(x.handle(), array.handle(), 7, y.handle());
  EXPECT_EQ(key.tensors, 0b1001u);
  EXPECT_EQ(key.arrays, 0b0010u);
}

TEST(CallKey, HoldsTextsNotTheirPlaces) {
  const char* const none = nullptr;
  char text[16] = "TND";
  const CallKey before{static_cast<const char*>(text)};
  EXPECT_TRUE(same(before, CallKey(static_cast<const char*>("TND"))));
  text[0] = 'B';
  EXPECT_FALSE(same(before, CallKey(static_cast<const char*>(text))));
  EXPECT_FALSE(same(before, CallKey(none)));
  EXPECT_FALSE(same(CallKey(""), CallKey(none)));
  EXPECT_FALSE(same(CallKey("A"), CallKey("AA")));
  EXPECT_TRUE(CallKey("seven77").known);
  EXPECT_FALSE(same(CallKey("seven77"), CallKey("seven78")));
  EXPECT_FALSE(CallKey("eight888").known);
}

// Phase one of an operator on two tensors and a number, and how often it was asked.
struct Counted {
  int asked = 0;
  bool keeps_nothing = false;

  aclnnStatus plan(const Tensor& x, const Tensor& out, int64_t number) {
    const CallKey key(x.handle(), out.handle(), number);
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    take_message();
    const aclnnStatus status =
        plan_phase(kScaleAdd, key, &size, &executor, [&](Launch& launch) -> Status {
          ++asked;
          Operand operands[2];
          if (Status s = read_tensor(kScaleAdd, "x", x.handle(), operands[0])) return s;
          if (Status s = read_tensor(kScaleAdd, "out", out.handle(), operands[1])) return s;
          launch.input(operands[0], kAnyStrides);
          launch.output(operands[1], kAnyStrides);
          launch.book(number);
          if (keeps_nothing) launch.keep_nothing();
          return kOk;
        });
    if (status != kOk) return status;
    EXPECT_EQ(size, number == 0 ? 0u : static_cast<uint64_t>(number) + 63);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), kOk);
    return kOk;
  }
};

TEST(PlanAgain, AsksTheOperatorOnce) {
  const Tensor x({4}, ACL_FLOAT), out({4}, ACL_FLOAT);
  Counted counted;
  for (int turn = 0; turn < 5; ++turn) ASSERT_EQ(counted.plan(x, out, 64), kOk) << take_message();
  EXPECT_EQ(counted.asked, 1);
  ASSERT_EQ(counted.plan(x, out, 128), kOk);
  EXPECT_EQ(counted.asked, 2) << "another number";
  ASSERT_EQ(counted.plan(x, out, 64), kOk);
  EXPECT_EQ(counted.asked, 2) << "both are at hand";
}

TEST(PlanAgain, AsksWhereATensorIsAnotherOne) {
  const Tensor x({4}, ACL_FLOAT), out({4}, ACL_FLOAT);
  Counted counted;
  ASSERT_EQ(counted.plan(x, out, 0), kOk);
  const Tensor other({4}, ACL_FLOAT);
  ASSERT_EQ(counted.plan(other, out, 0), kOk);
  EXPECT_EQ(counted.asked, 2);
  const int64_t two = 2;
  ASSERT_EQ(aclInitTensor(x.handle(), &two, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &two, 1,
                          x.address()),
            kOk);
  ASSERT_EQ(counted.plan(x, out, 0), kOk);
  EXPECT_EQ(counted.asked, 3) << "described anew";
  ASSERT_EQ(aclSetRawTensorAddr(x.handle(), other.address()), kOk);
  ASSERT_EQ(counted.plan(x, out, 0), kOk);
  EXPECT_EQ(counted.asked, 3) << "only moved: what is checked of addresses is checked anyway";
  ASSERT_EQ(aclSetRawTensorAddr(x.handle(), out.address()), kOk);
  EXPECT_EQ(counted.plan(x, out, 0), kParamInvalid);
  expect_message(take_message(), {"aclnnScaleAdd: out overlaps x"});
  EXPECT_EQ(counted.asked, 3);
}

TEST(PlanAgain, LeavesNothingOfWhatIsNotKept) {
  const Tensor x({4}, ACL_FLOAT), out({4}, ACL_FLOAT);
  Counted counted{.keeps_nothing = true};
  for (int turn = 0; turn < 3; ++turn) ASSERT_EQ(counted.plan(x, out, 0), kOk);
  EXPECT_EQ(counted.asked, 3);
}

}  // namespace
}  // namespace aclgrad::test
