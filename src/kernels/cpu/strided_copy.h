// SPDX-License-Identifier: Apache-2.0
// Copies one strided view to another of the same shape: the only pack and unpack of the project.
#ifndef ACLGRAD_KERNELS_CPU_STRIDED_COPY_H_
#define ACLGRAD_KERNELS_CPU_STRIDED_COPY_H_

#include <cstdint>

#include "base/view.h"

namespace aclgrad {

enum class CopyOrder : uint8_t {
  kParallel,
  // One thread, in an order that the shapes alone decide: for targets that may name one address
  // twice.
  kSequential,
};

// target[i] = source[i] for every index i of the common shape. The dtypes have the same size (1, 2,
// 4, 8 or 16 bytes; the values are not looked at). Addresses are those of element (0, 0, ...) and
// need no alignment; strides may be 0 or negative. The two views share no byte.
void strided_copy(const View& from, const void* source, const View& to, void* target,
                  CopyOrder order = CopyOrder::kParallel) noexcept;

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_STRIDED_COPY_H_
