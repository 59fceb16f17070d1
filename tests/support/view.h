// SPDX-License-Identifier: Apache-2.0
#ifndef ACLGRAD_TESTS_SUPPORT_VIEW_H_
#define ACLGRAD_TESTS_SUPPORT_VIEW_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/view.h"

namespace aclgrad::test {

inline View make_view(aclDataType dtype, const std::vector<int64_t>& dims,
                      const std::vector<int64_t>& strides) {
  View view;
  view.dtype = dtype;
  view.rank = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), view.dims.begin());
  std::copy(strides.begin(), strides.end(), view.strides.begin());
  return view;
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_VIEW_H_
