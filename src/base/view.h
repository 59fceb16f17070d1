// SPDX-License-Identifier: Apache-2.0
// A strided view as plain data: what kernels know of a tensor (its address comes apart from it).
#ifndef ACLGRAD_BASE_VIEW_H_
#define ACLGRAD_BASE_VIEW_H_

#include <array>
#include <cstdint>
#include <span>

#include "base/checked.h"
#include "base/dtype.h"

namespace aclgrad {

inline constexpr int kMaxRank = 8;

// Element (i0, i1, ...) lies strides . i elements after the address of element (0, 0, ...).
struct View {
  aclDataType dtype = ACL_DT_UNDEFINED;
  int rank = 0;
  // Of the first `rank` dimensions. The others are never read and therefore not set: a small call
  // makes dozens of views.
  std::array<int64_t, kMaxRank> dims;
  std::array<int64_t, kMaxRank> strides;  // in elements; 0 and negative allowed

  int64_t numel() const {
    return saturating_product(std::span(dims.data(), static_cast<size_t>(rank)));
  }
};

// Of a view with elements.
inline View contiguous_view(aclDataType dtype, int rank,
                            const std::array<int64_t, kMaxRank>& dims) {
  View view;
  view.dtype = dtype;
  view.rank = rank;
  int64_t stride = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const auto index = static_cast<size_t>(i);
    view.dims[index] = dims[index];
    view.strides[index] = stride;
    stride *= dims[index];
  }
  return view;
}

// The same elements in the same order with fewer dimensions: size-1 dimensions are dropped and
// neighbours that step as one are joined. `from`, `to`: only dimensions [from, to) of `view`.
inline View collapsed(const View& view, int from, int to) {
  View out;
  out.dtype = view.dtype;
  for (int i = from; i < to; ++i) {
    const auto from_index = static_cast<size_t>(i);
    const int64_t dim = view.dims[from_index];
    const int64_t stride = view.strides[from_index];
    if (dim == 1) continue;
    if (out.rank > 0) {
      const auto last = static_cast<size_t>(out.rank - 1);
      int64_t step = 0;
      int64_t joined = 0;  // leaves int64 in empty views only
      if (!__builtin_mul_overflow(stride, dim, &step) && out.strides[last] == step &&
          !__builtin_mul_overflow(out.dims[last], dim, &joined)) {
        out.dims[last] = joined;
        out.strides[last] = stride;
        continue;
      }
    }
    out.dims[static_cast<size_t>(out.rank)] = dim;
    out.strides[static_cast<size_t>(out.rank)] = stride;
    ++out.rank;
  }
  return out;
}
inline View collapsed(const View& view) { return collapsed(view, 0, view.rank); }

// The elements follow each other in memory.
inline bool is_one_run(const View& view) {
  const View joined = collapsed(view);
  return joined.rank == 0 || (joined.rank == 1 && joined.strides[0] == 1);
}

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_VIEW_H_
