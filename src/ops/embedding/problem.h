// SPDX-License-Identifier: Apache-2.0
// Embedding: rows of a table, looked up,
//
//   y[r, :] = table[indices[r], :]
//
// Contract name -> name here: weight table, out y. `rows` are those of y, one an index; `cols`
// those of table and y. Elements are copied bit by bit, but for NaNs: they become the canonical
// one.
#ifndef ACLGRAD_OPS_EMBEDDING_PROBLEM_H_
#define ACLGRAD_OPS_EMBEDDING_PROBLEM_H_

#include <cstdint>

#include "aclnn/acl_meta.h"
#include "base/device_record.h"
#include "base/status.h"
#include "base/view.h"
#include "kernels/cuda/queue.h"

namespace aclgrad {
class Launch;
}

namespace aclgrad::embedding {

// Plain data: what to compute, no addresses.
struct Problem {
  View table;    // [table_rows, cols]; last dimension dense, any stride before it
  View indices;  // `rows` elements, INT32 or INT64, any shape and strides
  View y;        // [..., cols]; last dimension dense, any strides before it
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t table_rows = 0;
};

// How it is cut, from the shape and the dtypes alone.
struct Plan {
  int64_t block_rows = 0;  // rows a task
  int64_t blocks = 0;
  int64_t panels = 0;  // parts of a row in bytes, each a task
};
Plan make_plan(const Problem& problem);

// Addresses of one run.
struct Addresses {
  const void *table = nullptr, *indices = nullptr;  // the table's is null when it has no elements
  void* y = nullptr;
};

// The bad index of the lowest position; position -1: all are good.
struct BadIndex {
  int64_t position, value;
};

// Writes every row of y: zeros for a bad index.
BadIndex run_cpu(const Problem& problem, const Plan& plan, const Addresses& at);
// Leaves a bad index in `record`: position and value.
CudaAnswer run_cuda(const Problem& problem, const Addresses& at, DeviceRecord* record,
                    const CudaQueue& queue);

// The arguments of phase one, as they came.
struct Arguments {
  const aclTensor *weight, *indices, *out;
  const uint64_t* workspace_size;
  aclOpExecutor* const* executor;
};
// Checks the arguments in the documented order and fills the launch, or refuses.
Status parse(const Arguments& arguments, Launch& launch);

}  // namespace aclgrad::embedding

#endif  // ACLGRAD_OPS_EMBEDDING_PROBLEM_H_
