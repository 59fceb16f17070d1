// SPDX-License-Identifier: Apache-2.0
// The ways in which a test lays the elements of a tensor out in memory.
#ifndef ACLGRAD_TESTS_SUPPORT_ARRANGEMENT_H_
#define ACLGRAD_TESTS_SUPPORT_ARRANGEMENT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace aclgrad::test {

using Dims = std::vector<int64_t>;

enum class Arrangement {
  kContiguous,
  kOffset,        // contiguous from an odd element on, hence misaligned
  kRowPadded,     // five elements between the rows of the last dimension
  kTransposed,    // the last two dimensions swapped in memory
  kReversed,      // every stride negative
  kReversedRows,  // the first stride negative, the last dimension contiguous (rank >= 2)
  kInnerStrided,  // every second element
  kBroadcast,     // stride 0 in the first dimension; inputs only
};

inline constexpr Arrangement kOutputArrangements[] = {
    Arrangement::kContiguous,  Arrangement::kOffset,   Arrangement::kRowPadded,
    Arrangement::kTransposed,  Arrangement::kReversed, Arrangement::kReversedRows,
    Arrangement::kInnerStrided};
inline constexpr Arrangement kInputArrangements[] = {
    Arrangement::kContiguous,   Arrangement::kOffset,   Arrangement::kRowPadded,
    Arrangement::kTransposed,   Arrangement::kReversed, Arrangement::kReversedRows,
    Arrangement::kInnerStrided, Arrangement::kBroadcast};

constexpr const char* arrangement_name(Arrangement arrangement) {
  switch (arrangement) {
    case Arrangement::kContiguous:
      return "contiguous";
    case Arrangement::kOffset:
      return "offset";
    case Arrangement::kRowPadded:
      return "row_padded";
    case Arrangement::kTransposed:
      return "transposed";
    case Arrangement::kReversed:
      return "reversed";
    case Arrangement::kReversedRows:
      return "reversed_rows";
    case Arrangement::kInnerStrided:
      return "inner_strided";
    case Arrangement::kBroadcast:
      return "broadcast";
  }
  return "unknown";
}

// Strides of dims stored in the given order of dimensions (outermost first); `inner_step` elements
// from one element of the innermost to the next, `row_gap` unused ones after each run of it.
inline Dims strides_in_order(const Dims& dims, const std::vector<size_t>& order,
                             int64_t inner_step = 1, int64_t row_gap = 0) {
  Dims strides(dims.size(), 0);
  int64_t step = inner_step;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t dim = order[i];
    strides[dim] = step;
    step *= dims[dim];
    if (i + 1 == order.size()) step += row_gap;
  }
  return strides;
}

inline Dims strides_of(const Dims& dims, Arrangement arrangement) {
  std::vector<size_t> order(dims.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const size_t rank = dims.size();
  if (arrangement == Arrangement::kTransposed && rank >= 2) {
    std::swap(order[rank - 1], order[rank - 2]);
  }
  Dims strides = strides_in_order(dims, order, arrangement == Arrangement::kInnerStrided ? 2 : 1,
                                  arrangement == Arrangement::kRowPadded ? 5 : 0);
  if (arrangement == Arrangement::kReversed) {
    for (int64_t& stride : strides) stride = -stride;
  }
  if (arrangement == Arrangement::kReversedRows && rank >= 2) strides[0] = -strides[0];
  if (arrangement == Arrangement::kBroadcast && rank >= 1) strides[0] = 0;
  return strides;
}

// Views whose last dimension is contiguous; kRepeated, of at least two dimensions, for inputs only.
enum class Form { kContiguous, kPadded, kPermuted, kReversed, kRepeated };
inline Dims form_strides(const Dims& dims, Form form) {
  std::vector<size_t> order(dims.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (form == Form::kPermuted) std::reverse(order.begin(), order.end() - 1);
  Dims strides = strides_in_order(dims, order, 1, form == Form::kContiguous ? 0 : 3);
  for (size_t i = 0; form == Form::kReversed && i + 1 < dims.size(); ++i) strides[i] *= -1;
  if (form == Form::kRepeated) strides[dims.size() - 2] = 0;
  return strides;
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_ARRANGEMENT_H_
