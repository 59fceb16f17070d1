// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "fuzz/operators.h"
#include "ops/embedding_dense_backward/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

constexpr aclDataType kIndexDtypes[] = {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE, ACL_INT32, ACL_INT64,
                                        ACL_INT16, ACL_INT8,    ACL_UINT8,  ACL_BOOL};

struct Call {
  TensorPointer grad, indices, out;
  const aclTensor* handles[3] = {};
  uint64_t table_rows = 0;
  uint64_t padding = 0;
  bool by_frequency = false;
  std::vector<std::shared_ptr<void>> kept;
};

// What an index of that dtype can be when it names no row.
double bad_index(Random& random, aclDataType dtype, uint64_t table_rows) {
  const auto first = static_cast<double>(table_rows);
  const double near[] = {first, first + 1, -1.0};
  if (dtype == ACL_INT64 && random.chance(0.5)) {
    return random.chance(0.5) ? 0x1p32 : -0x1p33;  // wraps to 0 in 32 bits
  }
  if ((dtype == ACL_FLOAT || dtype == ACL_DOUBLE) && random.chance(0.4)) {
    using Limits = std::numeric_limits<double>;
    const double odd[] = {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), 0x1p70};
    return random.pick(odd);
  }
  return random.pick(near);
}

double largest_index(aclDataType dtype) {
  if (dtype == ACL_INT8) return 127;
  if (dtype == ACL_UINT8) return 255;
  if (dtype == ACL_FLOAT16) return 2048;
  return 32767;
}

void fill_indices(Random& random, Call& c) {
  const aclDataType dtype = c.indices->dtype();
  const auto count = static_cast<size_t>(c.indices->numel());
  if (dtype == ACL_BOOL) {
    std::vector<uint8_t> bytes(count);
    for (uint8_t& byte : bytes) byte = random.chance(0.5) ? 0 : static_cast<uint8_t>(random.bits());
    c.indices->fill_bits(bytes);
    return;
  }
  const double most = std::min(static_cast<double>(c.table_rows) - 1, largest_index(dtype));
  const bool fractions = is_float_dtype(dtype) || dtype == ACL_DOUBLE;
  std::vector<double> values(count);
  for (double& value : values) {
    value = std::floor(random.uniform(0, most + 1));
    if (random.chance(0.2)) value = 0;
    if (fractions && most < 512 && random.chance(0.3)) value += 0.5;
    if (fractions && value == 0 && random.chance(0.3)) value = -0.5;  // truncates to row 0
  }
  const bool representable = static_cast<double>(c.table_rows) + 1 <= largest_index(dtype);
  if (count > 0 && representable && dtype != ACL_UINT8 && random.chance(0.25)) {
    const auto place = static_cast<size_t>(random.integer(0, static_cast<int64_t>(count) - 1));
    values[place] = bad_index(random, dtype, c.table_rows);
  }
  c.indices->fill(values);
}

// The indices as the reference wants them: a bool is 0 or 1.
std::vector<double> index_values(const Tensor& indices) {
  std::vector<double> values = indices.values();
  if (indices.dtype() == ACL_BOOL) {
    for (double& value : values) value = value == 0 ? 0 : 1;
  }
  return values;
}

void break_call(Random& random, Call& c, Attempt& a) {
  constexpr const char* kNames[] = {"grad", "indices", "out"};
  const Tensor* tensors[] = {c.grad.get(), c.indices.get(), c.out.get()};
  const int64_t kind = random.integer(0, 3);
  a.text += " defect " + std::to_string(kind);
  const auto replace = [&](size_t index, const Dims& dims) {
    auto tensor = std::make_shared<Tensor>(dims, tensors[index]->dtype());
    c.handles[index] = tensor->handle();
    c.kept.push_back(tensor);
    a.refuse(kParamInvalid, kNames[index]);
  };
  const Dims out = c.out->dims();
  if (kind == 0) {
    const auto index = static_cast<size_t>(random.integer(0, 2));
    BrokenTensor broken = break_tensor(random, *tensors[index], kNames[index], a);
    c.handles[index] = broken.handle;
    c.kept.push_back(broken.kept);
  } else if (kind == 1 && out[1] != 0) {
    replace(1, {c.indices->numel() + 1});
  } else if (kind == 2) {
    replace(2, {out[0] + 1, out[1]});
  } else {
    replace(2, random.chance(0.5) ? Dims{out[0], out[1] + 1} : Dims{out[0], out[1], 1});
  }
}

void draw_call(Random& random, Call& c) {
  const int64_t cols = draw_length(random, 3000);
  const int64_t rows = draw_length(random, 8000 / std::max<int64_t>(cols, 4));
  c.table_rows = static_cast<uint64_t>(random.chance(0.03) ? 0 : random.integer(1, 60));
  if (random.chance(0.1)) c.table_rows = static_cast<uint64_t>(random.integer(1, 3000));
  aclDataType dtype = random.pick(kIndexDtypes);
  if (dtype == ACL_BOOL) c.table_rows = std::max<uint64_t>(c.table_rows, 2);
  if (random.chance(0.3)) dtype = ACL_INT64;
  Dims dims = draw_factors(random, rows);
  if (dims.size() > 7) dims = {rows};
  dims.push_back(cols);
  c.grad = draw_input(random, dims, random.pick(kFloats));
  c.indices = draw_input(random, draw_factors(random, rows), dtype);
  c.out = draw_output(random, {static_cast<int64_t>(c.table_rows), cols}, random.pick(kFloats));
  const uint64_t paddings[] = {~uint64_t{0}, 0xFFFFFFFFu, c.table_rows, 0, c.table_rows / 2};
  c.padding = random.pick(paddings);
  c.by_frequency = random.chance(0.4);
  fill_floats(random, *c.grad);
  fill_indices(random, c);
  c.handles[0] = c.grad->handle();
  c.handles[1] = c.indices->handle();
  c.handles[2] = c.out->handle();
}

}  // namespace

Attempt draw_embedding_dense_backward(Random& random) {
  Attempt a;
  a.function = "aclnnEmbeddingDenseBackward";
  auto c = std::make_shared<Call>();
  draw_call(random, *c);
  a.inputs = {c->grad, c->indices};
  a.outputs = {c->out};
  a.describe("grad", *c->grad);
  a.describe("indices", *c->indices);
  a.describe("out", *c->out);
  a.text += " padding=" + std::to_string(c->padding) + (c->by_frequency ? " by frequency" : "");
  if (random.chance(0.2)) break_call(random, *c, a);
  const auto exact = std::make_shared<embedding_dense_backward::ReferenceResult>(
      embedding_dense_backward::reference({static_cast<size_t>(c->out->dims()[1]), c->table_rows,
                                           c->padding, c->by_frequency, c->grad->values(),
                                           index_values(*c->indices)}));
  if (exact->first_bad >= 0 && c->out->numel() > 0) {
    a.synchronise = ACL_ERROR_RT_AICORE_EXCEPTION;
    a.reported = std::to_string(exact->first_bad);
  }
  a.plan = [c](uint64_t* size, aclOpExecutor** executor) {
    return aclnnEmbeddingDenseBackwardGetWorkspaceSize(c->handles[0], c->handles[1], c->table_rows,
                                                       c->padding, c->by_frequency, c->handles[2],
                                                       size, executor);
  };
  a.execute = aclnnEmbeddingDenseBackward;
  a.check = [c, exact] {
    test::expect_close("aclnnEmbeddingDenseBackward", *c->out, exact->dw, exact->magnitude,
                       static_cast<double>(exact->most_terms));
  };
  return a;
}

}  // namespace aclgrad::fuzz
