// SPDX-License-Identifier: Apache-2.0
// Whether two strided views share a byte, or one view has two indices at one address. Decided
// exactly: a bounded linear Diophantine equation, searched with a bound on the work.
#ifndef ACLGRAD_TENSOR_OVERLAP_H_
#define ACLGRAD_TENSOR_OVERLAP_H_

#include <cstdint>

#include "base/view.h"

namespace aclgrad {

enum class Overlap : uint8_t { kNo, kYes, kUndecided };

// Steps of the search before it gives up; a step costs about 20 ns, so a hard case costs 1 ms.
inline constexpr int64_t kOverlapWork = 50'000;

// Bytes from element (0, 0, ...) to the view's lowest byte and behind its highest one. The view has
// elements, and its reach fits int64 (check::sizes).
struct Extent {
  int64_t low = 0;
  int64_t high = 0;
};
Extent extent_of(const View& view);

// Do the elements of the two views share a byte? Both have elements; addresses are those of element
// (0, 0, ...).
Overlap views_overlap(const View& a, uintptr_t address_a, const View& b, uintptr_t address_b,
                      int64_t work = kOverlapWork);

// Do two different indices of the view name the same address?
Overlap self_overlap(const View& view, int64_t work = kOverlapWork);

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_OVERLAP_H_
