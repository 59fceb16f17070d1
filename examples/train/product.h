// SPDX-License-Identifier: Apache-2.0
// Matrix products by the BLAS. OpenBLAS gives other bits with another number of threads, so it is
// held to one, and large products are cut into tiles by their shape alone, which run side by side.
#ifndef ACLGRAD_TRAIN_PRODUCT_H_
#define ACLGRAD_TRAIN_PRODUCT_H_

#include <cstddef>

#include "workers.h"

namespace aclgrad::train {

// A row-major matrix in memory, or its transpose.
struct Matrix {
  const float* data = nullptr;
  size_t stride = 0;  // floats from one stored row to the next
  bool transposed = false;
};

// The transpose of what is stored.
inline Matrix transpose(const float* data, size_t stride) { return {data, stride, true}; }

struct Shape {
  size_t rows = 0, cols = 0, inner = 0;
};

// Whether a product replaces what is in its output or is added to it.
enum class Into { replace, add };

// Holds the BLAS to one thread. Before the first product.
void use_one_blas_thread();

// c = a b or c += a b on the calling thread.
void product(Shape shape, Matrix a, Matrix b, float* c, size_t stride, Into into = Into::replace);

// The same, in tiles on all workers.
void product(Workers& workers, Shape shape, Matrix a, Matrix b, float* c, size_t stride,
             Into into = Into::replace);

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_PRODUCT_H_
