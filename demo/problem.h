// SPDX-License-Identifier: Apache-2.0
// One operator on real input, measured and compared with its reference in double.
#ifndef ACLGRAD_DEMO_PROBLEM_H_
#define ACLGRAD_DEMO_PROBLEM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "text.h"

namespace aclgrad::demo {

// A row of the table.
struct Result {
  std::string op, shape, dtype;
  double seconds = 0;  // median of the runs, both phases and the synchronise
  int64_t bytes = 0;   // every input read once, every output written once
  double error = 0;    // the largest, in units of the tolerance
};

struct Problem {
  std::string op, dtype;
  std::function<Result()> measure;
};

// All operators in all their dtypes on the text.
std::vector<Problem> problems(const Text& text);

}  // namespace aclgrad::demo

#endif  // ACLGRAD_DEMO_PROBLEM_H_
