// SPDX-License-Identifier: Apache-2.0
// Shapes: "65536x4x128-l32-d16", tokens x heads x width with windows of 32 tokens every 16;
// "...-s64", in 64 sequences of equal length.
#include <memory>
#include <optional>
#include <stdexcept>

#include "aclnnop/aclnn_nsa_compress.h"
#include "bench/bench.h"
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

// Takes "-<key><number>" off the end of the shape; nothing when it does not end that way.
std::optional<int64_t> take_suffix(std::string& shape, const std::string& key) {
  const size_t at = shape.rfind("-" + key);
  if (at == std::string::npos) return std::nullopt;
  const int64_t value = parse_dims(shape.substr(at + 1 + key.size()), 1)[0];
  shape.erase(at);
  return value;
}

Problem make(aclDataType dtype, const std::string& name) {
  std::string shape = name;
  const int64_t sequences = take_suffix(shape, "s").value_or(1);
  const std::optional<int64_t> step = take_suffix(shape, "d");
  const std::optional<int64_t> window = take_suffix(shape, "l");
  if (!step || !window || *step < 1 || sequences < 1) {
    throw std::invalid_argument(name +
                                ": expected TxNxD-l<window>-d<step>, then maybe -s<sequences>");
  }
  const Dims rows = parse_dims(shape, 3);
  Dims ends;
  for (int64_t i = 1; i <= sequences; ++i) ends.push_back(rows[0] * i / sequences);
  const auto starts = nsa_compress::window_starts(*window, *step, ends);
  const auto t =
      std::make_shared<Tensors>(rows, *window, static_cast<int64_t>(starts.size()), ends, dtype);
  const int64_t bytes = t->x.bytes() + t->w.bytes() + t->y.bytes();
  return {[t, l = *window, d = *step](uint64_t* size, aclOpExecutor** executor) {
            return aclnnNsaCompressGetWorkspaceSize(t->x.handle(), t->w.handle(), t->sequences,
                                                    nullptr, l, d, 0, t->y.handle(), size,
                                                    executor);
          },
          aclnnNsaCompress, bytes, 2.0 * static_cast<double>(*window * t->y.numel())};
}

[[maybe_unused]] const bool added = add({"nsa_compress", make, nsa_compress::bench_shapes()});

}  // namespace
}  // namespace aclgrad::bench
