// SPDX-License-Identifier: Apache-2.0
// NsaCompress: windows of `window` tokens start every `step` tokens inside each sequence; window i
// starts at token start_i, windows of all sequences are numbered in order, and
//
//   y[i, n, :] = sum over j of w[j, n] * x[start_i + j, n, :]
//
// Contract name -> name here: input x, weight w, output y, compressBlockSize window, compressStride
// step; [T, N, D] is [tokens, heads, width].
#ifndef ACLGRAD_OPS_NSA_COMPRESS_PROBLEM_H_
#define ACLGRAD_OPS_NSA_COMPRESS_PROBLEM_H_

#include <cstdint>
#include <span>

#include "aclnn/acl_meta.h"
#include "base/short_list.h"
#include "base/status.h"
#include "base/view.h"
#include "kernels/cuda/queue.h"

namespace aclgrad {
class Launch;
}

namespace aclgrad::nsa_compress {

// A sequence that has windows.
struct Sequence {
  int64_t token;         // first token
  int64_t first_window;  // among the windows of all sequences
  int64_t windows;       // at least 1
};

// Plain data: what to compute, no addresses.
struct Problem {
  int64_t tokens = 0, heads = 0, width = 0;
  int64_t window = 0, step = 0;
  View x, y;  // [tokens or windows, heads, width], the width dense, any strides before it
  View w;     // [window, heads], any strides
  ShortList<Sequence, 4> sequences;
  int64_t windows = 0;  // of all sequences
};

// Fills the sequences from the cumulative ends (non-decreasing, at most problem.tokens).
void place_windows(Problem& problem, std::span<const int64_t> ends);

// How it is cut, from the shape and the number of threads; the bits are the same.
struct Plan {
  int64_t block_windows = 0;  // windows of one block
  int64_t window_blocks = 0;
  int64_t block_heads = 0;  // and its heads
  int64_t head_blocks = 0;
};
Plan make_plan(const Problem& problem);

// Addresses of one run; null for tensors without elements.
struct Addresses {
  const void *x = nullptr, *w = nullptr;
  void* y = nullptr;
};
void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at);
CudaAnswer run_cuda(const Problem& problem, const Addresses& at, const CudaQueue& queue);

// The arguments of phase one, as they came.
struct Arguments {
  const aclTensor *input, *weight;
  const aclIntArray* act_seq_len;
  const char* layout;
  int64_t compress_block_size, compress_stride, act_seq_len_type;
  const aclTensor* output;
  const uint64_t* workspace_size;
  aclOpExecutor* const* executor;
};
// Checks the arguments in the documented order and fills the launch, or refuses.
Status parse(const Arguments& arguments, Launch& launch);

}  // namespace aclgrad::nsa_compress

#endif  // ACLGRAD_OPS_NSA_COMPRESS_PROBLEM_H_
