// SPDX-License-Identifier: Apache-2.0
// EmbeddingDenseBackward: the gradient of an embedding table,
//
//   dw[v, :] = sum over r with indices[r] == v of dy[r, :]      v != padding
//   dw[padding, :] = 0
//   with scale_by_frequency: dw[v, :] divided by the number of r with indices[r] == v
//
// Contract name -> name here: grad dy, numWeights table_rows, paddingIdx padding, scaleGradByFreq
// scale_by_frequency, out dw. `rows` are those of dy, one an index; `cols` those of dy and dw.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_PROBLEM_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_PROBLEM_H_

#include <array>
#include <cstdint>

#include "aclnn/acl_meta.h"
#include "base/device_record.h"
#include "base/status.h"
#include "base/view.h"
#include "kernels/cpu/rows.h"
#include "kernels/cuda/queue.h"

namespace aclgrad {
class Launch;
}

namespace aclgrad::embedding_dense_backward {

// Plain data: what to compute, no addresses.
struct Problem {
  View dy;       // [..., cols]; last dimension dense, any strides before it
  View indices;  // `rows` elements, any strides, in as few dimensions as hold them
  View dw;       // [table_rows, cols]; last dimension dense
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t table_rows = 0;
  int64_t padding = -1;  // a row of the table, or -1
  bool scale_by_frequency = false;
};

// How it is cut, from the shape, the dtypes and, of a narrow table, the strides and the number of
// threads.
struct Plan {
  bool wide = false;        // the sort needs 64-bit numbers
  int digit_bits = 1;       // of a sorting pass
  int passes = 1;           // of the sort
  int64_t sort_blocks = 1;  // blocks of positions
  int64_t sort_block = 0;   // positions in each but the last
  // A narrow table, unless its indices rise: tasks that each own a part of it (owners.h).
  int64_t owners = 0;
  // Few columns and many indices without owners: unless those rise, the sort stops at buckets of
  // 2^bucket_bits table rows, each of which is summed at once (buckets.h).
  bool has_buckets = false;
  int bucket_bits = 0;
  int64_t sweep_blocks = 1;  // blocks of table rows
  int64_t panels = 1;        // parts of their columns

  RowOffsets dy_rows, dw_rows;

  // Bytes of workspace regions. A problem of few indices takes its scratch from the stack: all 0.
  // Keys and positions, moved from one to the other; or keys, and the records of buckets or the
  // sums of owners.
  std::array<int64_t, 2> buffer_bytes{};
  int64_t histogram_bytes = 0;
  int64_t bucket_bytes = 0;  // groups of all blocks of the sort, later sums of all tasks
};
Plan make_plan(const Problem& problem);

// Addresses of one run. Absent ones are null.
struct Addresses {
  const void *dy = nullptr, *indices = nullptr;
  void* dw = nullptr;
  std::array<void*, 2> buffers{};
  void* histograms = nullptr;
  void* bucket_scratch = nullptr;
};

// The bad index of the lowest position; position -1: all are good.
struct BadIndex {
  int64_t position;
  int64_t integer;  // its value where indices are integers
  double floating;  // and where they are floating
};

// Writes every element of dw. Bad indices contribute nothing.
BadIndex run_cpu(const Problem& problem, const Plan& plan, const Addresses& at);

// The same on a GPU. `scratch`: the bytes of cuda_scratch(). `record` gets the bad index: rule 1,
// its position, its integer value and the bits of its floating one.
CudaAnswer run_cuda(const Problem& problem, const Plan& plan, const Addresses& at, void* scratch,
                    DeviceRecord* record, const CudaQueue& queue);
CudaAnswer cuda_scratch(const Problem& problem, const Plan& plan, const CudaQueue& queue,
                        size_t& bytes);

// The arguments of phase one, as they came.
struct Arguments {
  const aclTensor *grad, *indices;
  uint64_t num_weights, padding_idx;
  bool scale_grad_by_freq;
  const aclTensor* out;
  const uint64_t* workspace_size;
  aclOpExecutor* const* executor;
};
// Checks the arguments in the documented order and fills the launch, or refuses.
Status parse(const Arguments& arguments, Launch& launch);

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_PROBLEM_H_
