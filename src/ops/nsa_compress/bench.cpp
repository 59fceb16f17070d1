// SPDX-License-Identifier: Apache-2.0
// Shapes: "65536x4x128-l32-d16", tokens x heads x width with windows of 32 tokens every 16;
// "...-s64", in 64 sequences of equal length, "...-s64-uneven", of unlike ones.
#include <memory>
#include <stdexcept>

#include "aclnnop/aclnn_nsa_compress.h"
#include "bench/bench.h"
#include "bench/windows.h"
#include "ops/nsa_compress/cases.h"
#include "ops/nsa_compress/reference.h"

namespace aclgrad::bench {
namespace {

struct Tensors {
  Tensors(const Dims& rows, int64_t window, int64_t windows, const Dims& ends, aclDataType dtype)
      : x(rows, dtype),
        w({window, rows[1]}, dtype),
        y({windows, rows[1], rows[2]}, dtype),
        sequences(aclCreateIntArray(ends.data(), ends.size())) {}
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;
  ~Tensors() { static_cast<void>(aclDestroyIntArray(sequences)); }

  Tensor x, w, y;
  aclIntArray* sequences;
};

void check(aclDataType dtype, const std::string& name) {
  if (dtype == ACL_FLOAT) throw std::invalid_argument("dtype 'f32': expected bf16 or f16");
  parse_windows(name);
}

Problem make(aclDataType dtype, const std::string& name) {
  const WindowShape shape = parse_windows(name);
  const auto starts = nsa_compress::window_starts(shape.window, shape.step, shape.ends);
  const auto t = std::make_shared<Tensors>(shape.rows, shape.window,
                                           static_cast<int64_t>(starts.size()), shape.ends, dtype);
  const int64_t bytes = t->x.bytes() + t->w.bytes() + t->y.bytes();
  return {[t, l = shape.window, d = shape.step](uint64_t* size, aclOpExecutor** executor) {
            return aclnnNsaCompressGetWorkspaceSize(t->x.handle(), t->w.handle(), t->sequences,
                                                    nullptr, l, d, 0, t->y.handle(), size,
                                                    executor);
          },
          aclnnNsaCompress, bytes, 2.0 * static_cast<double>(shape.window * t->y.numel())};
}

[[maybe_unused]] const bool added =
    add({"nsa_compress", check, make, in_dtypes(kHalfFloats, nsa_compress::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench
