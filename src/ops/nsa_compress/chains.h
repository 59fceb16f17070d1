// SPDX-License-Identifier: Apache-2.0
// What becomes of a window's chains: which of them wait for partners, and where.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_CHAINS_H_
#define ACLGRAD_OPS_NSA_COMPRESS_CHAINS_H_

#include <cstddef>

#include "base/checked.h"
#include "ops/nsa_compress/problem.h"
#include "ops/nsa_compress/tree.h"

namespace aclgrad::nsa_compress {

// What becomes of the chain of one group: the levels whose waiting sums it is added to, in order,
// then the level at which it waits itself, or else the window is done.
struct Next {
  size_t partners[kLevels] = {};
  size_t count = 0;
  size_t level = 0;
  bool done = false;
};

// The chain of `group` of a window that has so many groups.
constexpr Next next_of(size_t group, size_t groups) {
  Next out;
  out.done = group + 1 == groups;
  for (size_t bits = group; (bits & 1) != 0 || (out.done && bits != 0); bits >>= 1, ++out.level) {
    if ((bits & 1) != 0) out.partners[out.count++] = out.level;
  }
  return out;
}

// The sums that wait are kept strip after strip: [slots][levels][kStripColumns] of each, those of
// window i in slot i mod slots. Rows as long as a tile would meet in the same lines of L1.
struct Waiting {
  explicit Waiting(const Problem& problem)
      : slots(static_cast<size_t>(ceil_div(problem.window, problem.step))) {
    while (kGroup << levels < problem.window) ++levels;
    slot_floats = levels * kStripColumns;
    strip_floats = slots * slot_floats;
    const auto strip = static_cast<int64_t>(kStripColumns);
    head_floats = static_cast<size_t>(ceil_div(problem.width, strip)) * strip_floats;
  }

  size_t slots;       // the most windows that a token has
  size_t levels = 1;  // sums that a window can have waiting
  size_t slot_floats, strip_floats, head_floats;
};

}  // namespace aclgrad::nsa_compress

#endif  // ACLGRAD_OPS_NSA_COMPRESS_CHAINS_H_
