// SPDX-License-Identifier: Apache-2.0
// One drawn call: what to run, what must come of it. An operator's file draws valid calls and
// breaks one thing in some of them.
#ifndef ACLGRAD_TESTS_FUZZ_ATTEMPT_H_
#define ACLGRAD_TESTS_FUZZ_ATTEMPT_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fuzz/draw.h"
#include "support/run.h"

namespace aclgrad::fuzz {

struct Attempt {
  std::string function;  // "aclnnLayerNormBackward"
  std::string text;      // shapes, strides and options, for the reader of a failure
  std::function<aclnnStatus(uint64_t*, aclOpExecutor**)> plan;
  test::Execute execute = nullptr;
  std::vector<TensorPointer> inputs;
  std::vector<TensorPointer> outputs;  // an output that is also an input (in place) is in both

  // What phase one must answer, and what its message must contain besides the function.
  aclnnStatus status = kOk;
  std::string named;
  // What the synchronise must answer, and what its message must contain.
  aclError synchronise = ACL_SUCCESS;
  std::string reported;

  // Compares the outputs with the reference; called once, after the first run.
  std::function<void()> check;

  void refuse(aclnnStatus expected, std::string parameter) {
    status = expected;
    named = std::move(parameter);
  }
  void describe(const std::string& name, const Tensor& tensor) {
    text += " " + name + "=" + text_of(tensor);
  }
};

// The ways to break a tensor argument that every operator refuses alike: absent, dead, private
// format, a dtype nobody takes, too many dims. Returns the handle to pass in its place and sets
// what is to be expected; the handle lives as long as `kept`.
struct BrokenTensor {
  const aclTensor* handle = nullptr;
  std::shared_ptr<void> kept;
};
BrokenTensor break_tensor(Random& random, const Tensor& tensor, const std::string& name,
                          Attempt& attempt);

}  // namespace aclgrad::fuzz

#endif  // ACLGRAD_TESTS_FUZZ_ATTEMPT_H_
