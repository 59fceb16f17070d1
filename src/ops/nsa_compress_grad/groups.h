// SPDX-License-Identifier: Apache-2.0
// A group of sixteen covered tokens: where it lies in its sequence and which windows it meets.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_GRAD_GROUPS_H_
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_GROUPS_H_

#include <algorithm>
#include <cstdint>

#include "base/checked.h"
#include "ops/nsa_compress_grad/problem.h"
#include "ops/nsa_compress_grad/tree.h"

namespace aclgrad::nsa_compress_grad {

// Where a group lies and which windows cover it: window `latest - a` for a in [begin, end), each of
// which has the group's first token at its token a * step + inside.
struct Group {
  int64_t token;
  int64_t latest;
  int64_t inside;
  int64_t begin, end;
};

inline Group place_group(const Problem& problem, const Sequence& sequence, int64_t index) {
  const int64_t first = (index - sequence.first_group) * kGroup;
  const int64_t latest = first / problem.step;
  const int64_t inside = first - latest * problem.step;
  return Group{sequence.token + first, sequence.first_window + latest, inside,
               std::max<int64_t>(0, latest - sequence.windows + 1),
               std::min(latest + 1, ceil_div(problem.window - inside, problem.step))};
}

}  // namespace aclgrad::nsa_compress_grad

#endif  // ACLGRAD_OPS_NSA_COMPRESS_GRAD_GROUPS_H_
