// SPDX-License-Identifier: Apache-2.0
// Rows that stand in every operator's error table. The test of an operator describes a valid call
//
//   struct Call {
//     static constexpr const char* kOp = "aclnnLayerNorm";
//     Tensor x{{2, 4}, ACL_FLOAT};             // a valid argument,
//     const aclTensor* x_at = x.handle();      // and what is passed
//     aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) const;  // phase one
//   };
//
// and the parameters that are tensors; every row is such a call with one thing changed.
#ifndef ACLGRAD_TESTS_SUPPORT_ERROR_ROWS_H_
#define ACLGRAD_TESTS_SUPPORT_ERROR_ROWS_H_

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {

inline constexpr aclnnStatus kNull = 161001, kInvalid = 161002;

// A tensor among the parameters, in the order of the signature.
template <class Call>
struct TensorParameter {
  const char* name;  // in the contract
  const aclTensor* Call::*passed;
  Tensor Call::*valid;
};

// A call that is valid, or made wrong in a way that phase one looks at later than at the row.
template <class Call>
using MakeCall = Call (*)();
template <class Call>
Call valid_call() {
  return Call();
}

// Status 0: the call is accepted. The message of any other names the function.
template <class Call>
void expect_status(const Call& call, aclnnStatus status,
                   std::initializer_list<std::string> substrings) {
  SCOPED_TRACE(substrings.size() == 0 ? "" : *substrings.begin());
  const auto plan = [&](uint64_t* size, aclOpExecutor** executor) {
    return call.plan(size, executor);
  };
  expect_refused(plan, status, substrings);
  if (status != 0) expect_refused(plan, status, {std::string(Call::kOp) + ": "});
}

// The message begins with the function and the parameter.
template <class Call>
std::string named(const char* parameter) {
  return std::string(Call::kOp) + ": " + parameter;
}

// One tensor is another one.
template <class Call>
void refused_with(const aclTensor* Call::*passed, const Tensor& tensor,
                  std::initializer_list<std::string> substrings) {
  Call call;
  call.*passed = tensor.handle();
  expect_status(call, kInvalid, substrings);
}

// Each of the tensors, and both outputs of phase one, are required.
template <class Call, size_t n>
void expect_nulls_refused(const TensorParameter<Call> (&parameters)[n],
                          MakeCall<Call> make = valid_call<Call>) {
  for (const TensorParameter<Call>& parameter : parameters) {
    Call call = make();
    call.*parameter.passed = nullptr;
    expect_status(call, kNull, {named<Call>(parameter.name), "null"});
  }
  const Call call = make();
  uint64_t size = 7;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(call.plan(nullptr, &executor), kNull);
  expect_message(take_message(), {named<Call>("workspaceSize"), "null"});
  EXPECT_EQ(executor, nullptr);
  EXPECT_EQ(call.plan(&size, nullptr), kNull);
  expect_message(take_message(), {named<Call>("executor"), "null"});
  EXPECT_EQ(size, 7u);
}

// Handles of other kinds, and of tensors that are destroyed.
template <class Call, size_t n>
void expect_wrong_handles_refused(const TensorParameter<Call> (&parameters)[n],
                                  MakeCall<Call> make = valid_call<Call>) {
  const IntArray array({1});
  for (const TensorParameter<Call>& parameter : parameters) {
    Call foreign = make();
    foreign.*parameter.passed = reinterpret_cast<const aclTensor*>(array.handle());
    expect_status(foreign, kInvalid, {named<Call>(parameter.name), "aclIntArray"});
    Call dead = make();
    (dead.*parameter.valid).destroy_handle();
    expect_status(dead, kInvalid, {named<Call>(parameter.name), "destroyed"});
  }
}

// Private layouts are refused, base formats are not.
template <class Call, size_t n>
void expect_private_formats_refused(const TensorParameter<Call> (&parameters)[n]) {
  for (const TensorParameter<Call>& parameter : parameters) {
    const auto expect_format = [&](aclFormat format, aclnnStatus status) {
      Call call;
      aclTensor* other = (call.*parameter.valid).make_handle(format);
      call.*parameter.passed = other;
      expect_status(call, status, {status == 0 ? "" : named<Call>(parameter.name), "format"});
      EXPECT_EQ(aclDestroyTensor(other), 0);
    };
    for (const aclFormat format : {ACL_FORMAT_NC1HWC0, ACL_FORMAT_FRACTAL_Z, ACL_FORMAT_FRACTAL_NZ,
                                   ACL_FORMAT_NDC1HWC0, ACL_FORMAT_NC1HWC0_C04}) {
      expect_format(format, kInvalid);
    }
    for (const aclFormat format :
         {ACL_FORMAT_NCHW, ACL_FORMAT_NHWC, ACL_FORMAT_NCL, ACL_FORMAT_UNDEFINED}) {
      expect_format(format, 0);
    }
  }
}

// One tensor becomes a view of other memory, which is destroyed.
template <class Call>
void expect_view_refused(Call& call, const aclTensor* Call::*passed, aclTensor* view,
                         std::initializer_list<std::string> substrings) {
  call.*passed = view;
  expect_status(call, kInvalid, substrings);
  EXPECT_EQ(aclDestroyTensor(view), 0);
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_ERROR_ROWS_H_
