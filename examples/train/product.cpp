// SPDX-License-Identifier: Apache-2.0
#include "product.h"

#include <cblas.h>

#include <algorithm>

namespace aclgrad::train {
namespace {

// Rows and columns of a tile: small enough that the weight gradients of a narrow model make work
// for several threads, large enough that the BLAS is near its speed.
constexpr size_t kTileRows = 64;
constexpr size_t kTileCols = 128;

// The part of a matrix that begins at (row, col) of what it means.
Matrix part(Matrix m, size_t row, size_t col) {
  m.data += m.transposed ? col * m.stride + row : row * m.stride + col;
  return m;
}

}  // namespace

void use_one_blas_thread() { openblas_set_num_threads(1); }

void product(Shape shape, Matrix a, Matrix b, float* c, size_t stride, Into into) {
  if (shape.rows == 0 || shape.cols == 0) return;
  if (shape.inner == 0) {
    if (into == Into::add) return;
    for (size_t row = 0; row < shape.rows; ++row) std::fill_n(c + row * stride, shape.cols, 0.0f);
    return;
  }
  cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasTrans : CblasNoTrans, static_cast<blasint>(shape.rows),
              static_cast<blasint>(shape.cols), static_cast<blasint>(shape.inner), 1.0f, a.data,
              static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride),
              into == Into::add ? 1.0f : 0.0f, c, static_cast<blasint>(stride));
}

void product(Workers& workers, Shape shape, Matrix a, Matrix b, float* c, size_t stride,
             Into into) {
  const size_t across = (shape.cols + kTileCols - 1) / kTileCols;
  const size_t down = (shape.rows + kTileRows - 1) / kTileRows;
  workers.run(across * down, [&](size_t tile) {
    const size_t row = tile / across * kTileRows, col = tile % across * kTileCols;
    const Shape of_tile = {std::min(kTileRows, shape.rows - row),
                           std::min(kTileCols, shape.cols - col), shape.inner};
    product(of_tile, part(a, row, 0), part(b, 0, col), c + row * stride + col, stride, into);
  });
}

}  // namespace aclgrad::train
