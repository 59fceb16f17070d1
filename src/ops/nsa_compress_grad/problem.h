// SPDX-License-Identifier: Apache-2.0
// NsaCompressGrad: windows of `window` tokens start every `step` tokens inside each sequence;
// window i starts at token start_i, windows of all sequences are numbered in order, and
//
//   dx[t, n, :] = sum over windows i covering t of w[t - start_i, n] * dy[i, n, :]
//   dw[j, n]    = sum over i and columns of dy[i, n, :] * x[start_i + j, n, :]
//
// Contract name -> name here: outputGrad dy, input x, weight w, inputGradOut dx, weightGradOut dw,
// compressBlockSize window, compressStride step; [T, N, D] is [tokens, heads, width].
#ifndef ACLGRAD_OPS_NSA_COMPRESS_GRAD_PROBLEM_H_
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_PROBLEM_H_

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

namespace aclgrad::nsa_compress_grad {

// A sequence that has windows. Its windows cover its first `(windows - 1) * step + window` tokens
// without a gap, because step < window.
struct Sequence {
  int64_t token;         // first token
  int64_t first_window;  // among the windows of all sequences
  int64_t windows;       // at least 1
  int64_t first_group;   // among the groups of sixteen covered tokens of all sequences
};

// Neighbouring tokens that no window covers: ends of sequences, short sequences, what follows the
// last one.
struct Gap {
  int64_t token;   // first token
  int64_t tokens;  // at least 1
  int64_t before;  // tokens in gaps before this one
};

// Plain data: what to compute, no addresses.
struct Problem {
  int64_t tokens = 0, heads = 0, width = 0;
  int64_t window = 0, step = 0;
  View x, dy, dx;  // [tokens or windows, heads, width], the width dense, any strides before it
  View w, dw;      // [window, heads], any strides
  ShortList<Sequence, 4> sequences;
  ShortList<Gap, 4> gaps;
  int64_t windows = 0;     // of all sequences
  int64_t groups = 0;      // of covered tokens
  int64_t gap_tokens = 0;  // in all gaps
};

// Fills the sequences and gaps from the cumulative ends (non-decreasing, at most problem.tokens).
void place_windows(Problem& problem, std::span<const int64_t> ends);

// How it is cut, from the shape alone.
struct Plan {
  bool serial = false;      // too small to share
  int64_t slab_groups = 0;  // groups a slab
  int64_t slabs = 0;
  int64_t batch_heads = 0;  // heads that are done before others are: all, or what there is room for
  int64_t block_heads = 0;  // heads of a slab that one block does
  int64_t gap_block = 0;    // uncovered tokens a block
  int64_t gap_blocks = 0;
  int64_t joined_heads = 0;  // heads whose dw one block joins from the slabs

  // Bytes of workspace regions; 0: not needed.
  int64_t weight_bytes = 0;   // float [batch_heads][window]: w
  int64_t partial_bytes = 0;  // double [slabs][batch_heads][window]: totals of dw of each slab
};
Plan make_plan(const Problem& problem);
// Cuts the heads in batches, for whose numbers 5 % of large operands are enough.
void make_batches(const Problem& problem, Plan& plan);

// Addresses of one run; null for tensors without elements.
struct Addresses {
  const void *dy = nullptr, *x = nullptr, *w = nullptr;
  void *dx = nullptr, *dw = nullptr;
  void *weight_region = nullptr, *partial_region = nullptr;
  void* list_region = nullptr;  // on a GPU, where the lists are long (plan.h)
};
void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at);
// The same on a GPU.
CudaAnswer run_cuda(const Problem& problem, const Plan& plan, const Addresses& at,
                    const CudaQueue& queue);

// The arguments of phase one, as they came.
struct Arguments {
  const aclTensor *output_grad, *input, *weight;
  const aclIntArray* act_seq_len;
  int64_t compress_block_size, compress_stride, act_seq_len_type;
  const char* layout;
  const aclTensor *input_grad, *weight_grad;
  const uint64_t* workspace_size;
  aclOpExecutor* const* executor;
};
// Checks the arguments in the documented order and fills the launch, or refuses.
Status parse(const Arguments& arguments, Launch& launch);

}  // namespace aclgrad::nsa_compress_grad

#endif  // ACLGRAD_OPS_NSA_COMPRESS_GRAD_PROBLEM_H_
