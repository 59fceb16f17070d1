// SPDX-License-Identifier: Apache-2.0
// One input and one output of the tests' own operator (scale_add.h), for tests of its executors.
#ifndef ACLGRAD_TESTS_TENSOR_PAIR_H_
#define ACLGRAD_TESTS_TENSOR_PAIR_H_

#include <cstdint>

#include "scale_add.h"
#include "support/device.h"
#include "support/tensor.h"

namespace aclgrad::test {

struct Pair {
  Pair() : x({16}, ACL_FLOAT), out({16}, ACL_FLOAT) { x.fill_integers(1, -99, 99); }
  ScaleAdd call(int64_t book = 0) const {
    return {.x = x.handle(), .out = out.handle(), .book = book};
  }
  bool right() const {
    require(aclrtSynchronizeStream(stream()), "aclrtSynchronizeStream");
    return out.values() == scaled(x.values(), {});
  }
  Tensor x, out;
};

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_TENSOR_PAIR_H_
