// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "aclnnop/aclnn_embedding.h"
#include "fuzz/operators.h"
#include "ops/embedding/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

constexpr aclDataType kDtypes[] = {ACL_BF16,  ACL_FLOAT,  ACL_FLOAT16,   ACL_INT64,
                                   ACL_INT32, ACL_INT16,  ACL_INT8,      ACL_UINT8,
                                   ACL_BOOL,  ACL_DOUBLE, ACL_COMPLEX64, ACL_COMPLEX128};
constexpr const char* kNames[] = {"weight", "indices", "out"};

struct Call {
  TensorPointer tensors[3];  // weight, indices, out
  const aclTensor* handles[3] = {};
  std::vector<std::shared_ptr<void>> kept;
};

void fill_table(Random& random, Tensor& table) {
  std::vector<uint8_t> bytes(static_cast<size_t>(table.numel()) * table.element_size());
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.bits());
  table.fill_bits(bytes);
}

void fill_indices(Random& random, Tensor& indices, int64_t table_rows) {
  std::vector<double> values(static_cast<size_t>(indices.numel()));
  for (double& value : values) {
    value = static_cast<double>(random.integer(0, std::max<int64_t>(table_rows, 1) - 1));
  }
  if (!values.empty() && random.chance(0.25)) {
    const double bad[] = {-1.0, static_cast<double>(table_rows), 1e9, -0x1p31};
    const int64_t place = random.integer(0, std::ssize(values) - 1);
    values[static_cast<size_t>(place)] = random.pick(bad);
  }
  indices.fill(values);
}

void draw_call(Random& random, Call& c) {
  const int64_t cols = draw_length(random, 3000);
  const int64_t rows = draw_length(random, 8000 / std::max<int64_t>(cols, 4));
  const int64_t table_rows = random.chance(0.03) ? 0 : random.integer(1, 60);
  const aclDataType dtype = random.pick(kDtypes);
  Dims dims = draw_factors(random, rows);
  if (dims.size() > 7) dims = {rows};
  c.tensors[0] = draw_input(random, {table_rows, cols}, dtype);
  c.tensors[1] = draw_input(random, dims, random.chance(0.5) ? ACL_INT32 : ACL_INT64);
  dims.push_back(cols);
  c.tensors[2] = draw_output(random, dims, dtype);
  fill_table(random, *c.tensors[0]);
  fill_indices(random, *c.tensors[1], table_rows);
  for (size_t i = 0; i < 3; ++i) c.handles[i] = c.tensors[i]->handle();
}

void break_call(Random& random, Call& c, Attempt& a) {
  const int64_t kind = random.integer(0, 3);
  a.text += " defect " + std::to_string(kind);
  const auto replace = [&](size_t index, const Dims& dims, aclDataType dtype) {
    auto tensor = std::make_shared<Tensor>(dims, dtype);
    c.handles[index] = tensor->handle();
    c.kept.push_back(tensor);
    a.refuse(kParamInvalid, kNames[index]);
  };
  Dims out = c.tensors[2]->dims();
  const aclDataType dtype = c.tensors[2]->dtype();
  if (kind == 0) {
    const auto index = static_cast<size_t>(random.integer(0, 2));
    BrokenTensor broken = break_tensor(random, *c.tensors[index], kNames[index], a);
    c.handles[index] = broken.handle;
    c.kept.push_back(broken.kept);
  } else if (kind == 1) {
    ++out[static_cast<size_t>(random.integer(0, std::ssize(out) - 1))];
    replace(2, out, dtype);
  } else if (kind == 2) {
    replace(2, out, dtype == ACL_FLOAT ? ACL_INT32 : ACL_FLOAT);
  } else {
    replace(1, c.tensors[1]->dims(), random.chance(0.5) ? ACL_FLOAT : ACL_INT16);
  }
}

}  // namespace

Attempt draw_embedding(Random& random) {
  Attempt a;
  a.function = "aclnnEmbedding";
  auto c = std::make_shared<Call>();
  draw_call(random, *c);
  a.inputs = {c->tensors[0], c->tensors[1]};
  a.outputs = {c->tensors[2]};
  for (size_t i = 0; i < 3; ++i) a.describe(kNames[i], *c->tensors[i]);
  if (random.chance(0.2)) break_call(random, *c, a);
  const Tensor& table = *c->tensors[0];
  const auto exact = std::make_shared<embedding::Reference>(
      embedding::reference(table.bits(), static_cast<size_t>(table.dims()[0]),
                           static_cast<size_t>(table.dims()[1]) * table.element_size(),
                           c->tensors[1]->values(), table.dtype()));
  if (exact->first_bad >= 0 && c->tensors[2]->numel() > 0) {
    a.synchronise = ACL_ERROR_RT_AICORE_EXCEPTION;
    a.reported = "position " + std::to_string(exact->first_bad) + ";";
  }
  a.plan = [c](uint64_t* size, aclOpExecutor** executor) {
    return aclnnEmbeddingGetWorkspaceSize(c->handles[0], c->handles[1], c->handles[2], size,
                                          executor);
  };
  a.execute = aclnnEmbedding;
  a.check = [c, exact] {
    test::expect_same_bits("aclnnEmbedding", c->tensors[2]->bits(), exact->y);
    EXPECT_TRUE(c->tensors[2]->untouched_outside());
  };
  return a;
}

}  // namespace aclgrad::fuzz
