// SPDX-License-Identifier: Apache-2.0
// Shapes: "65536x4x128-l32-d16", tokens x heads x width with windows of 32 tokens every 16;
// "...-s64", in 64 sequences of equal length, "...-s64-uneven", of unlike ones.
#include <memory>
#include <stdexcept>

#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "bench/bench.h"
#include "bench/windows.h"
#include "ops/nsa_compress_grad/cases.h"
#include "ops/nsa_compress_grad/reference.h"

namespace aclgrad::bench {
namespace {

struct Tensors {
  Tensors(const Dims& rows, int64_t window, int64_t windows, const Dims& ends, aclDataType dtype)
      : dy({windows, rows[1], rows[2]}, dtype),
        x(rows, dtype),
        w({window, rows[1]}, dtype),
        dx(rows, dtype),
        dw({window, rows[1]}, dtype),
        sequences(aclCreateIntArray(ends.data(), ends.size())) {}
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;
  ~Tensors() { static_cast<void>(aclDestroyIntArray(sequences)); }

  Tensor dy, x, w, dx, dw;
  aclIntArray* sequences;
};

void check(aclDataType dtype, const std::string& name) {
  if (dtype == ACL_FLOAT) throw std::invalid_argument("dtype 'f32': expected bf16 or f16");
  parse_windows(name);
}

Problem make(aclDataType dtype, const std::string& name) {
  const WindowShape shape = parse_windows(name);
  const auto starts =
      nsa_compress_grad::window_starts(shape.rows[0], shape.window, shape.step, shape.ends);
  const auto t = std::make_shared<Tensors>(shape.rows, shape.window,
                                           static_cast<int64_t>(starts.size()), shape.ends, dtype);
  const int64_t bytes = t->dy.bytes() + t->x.bytes() + t->w.bytes() + t->dx.bytes() + t->dw.bytes();
  return {[t, l = shape.window, d = shape.step](uint64_t* size, aclOpExecutor** executor) {
            return aclnnNsaCompressGradGetWorkspaceSize(
                t->dy.handle(), t->x.handle(), t->w.handle(), t->sequences, l, d, 0, nullptr,
                t->dx.handle(), t->dw.handle(), size, executor);
          },
          aclnnNsaCompressGrad, bytes, 4.0 * static_cast<double>(shape.window * t->dy.numel())};
}

[[maybe_unused]] const bool added = add(
    {"nsa_compress_grad", check, make, in_dtypes(kHalfFloats, nsa_compress_grad::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench
