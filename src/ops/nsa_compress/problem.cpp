// SPDX-License-Identifier: Apache-2.0
#include "ops/nsa_compress/problem.h"

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "base/verbose.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"
#include "ops/nsa_compress/chains.h"
#include "ops/nsa_compress/tree.h"
#include "tensor/check.h"
#include "tensor/launch.h"
#include "tensor/operand.h"
#include "tensor/sequences.h"

namespace aclgrad::nsa_compress {
namespace {

constexpr const char* kOp = "aclnnNsaCompress";

// Everything phase one reads of the arguments.
struct Inputs {
  Operand x, w, y;
  IntEntries ends;
};

// In the order of the signature.
std::array<const Operand*, 3> tensors(const Inputs& in) { return {&in.x, &in.w, &in.y}; }

Status check_null(const Arguments& in) {
  if (Status s = check::not_null(kOp, "input", in.input)) return s;
  if (Status s = check::not_null(kOp, "weight", in.weight)) return s;
  if (Status s = check::not_null(kOp, "output", in.output)) return s;
  return check_outputs(kOp, in.workspace_size, in.executor);
}

Status read_handles(const Arguments& in, Inputs& out) {
  if (Status s = read_tensor(kOp, "input", in.input, out.x)) return s;
  if (Status s = read_tensor(kOp, "weight", in.weight, out.w)) return s;
  if (Status s = read_int_array(kOp, "actSeqLenOptional", in.act_seq_len, out.ends)) return s;
  return read_tensor(kOp, "output", in.output, out.y);
}

Status check_dtypes(const Inputs& in) {
  if (Status s = check::dtype(kOp, in.x, {ACL_FLOAT16, ACL_BF16})) return s;
  if (Status s = check::same_dtype(kOp, in.w, in.x)) return s;
  return check::same_dtype(kOp, in.y, in.x);
}

Status check_ranks(const Inputs& in) {
  for (const Operand* operand : tensors(in)) {
    const uint64_t rank = operand == &in.w ? 2 : 3;
    if (Status s = check::rank(kOp, *operand, rank, rank)) return s;
  }
  return kOk;
}

// What the tensors' shapes say about each other.
Status check_shapes(const Inputs& in) {
  if (in.x.dim(1) > kMostHeads) {
    return fail(kParamInvalid, "%s: input has shape %s; expected a second dim of at most %lld", kOp,
                shape_text(in.x).c_str(), static_cast<long long>(kMostHeads));
  }
  if (in.x.dim(2) % kGroup != 0 || in.x.dim(2) > kMostWidth) {
    return fail(kParamInvalid,
                "%s: input has shape %s; expected a last dim that is a multiple of 16 and at most "
                "%lld",
                kOp, shape_text(in.x).c_str(), static_cast<long long>(kMostWidth));
  }
  if (Status s = check::window_weights(kOp, in.w, in.x)) return s;
  return check::window_rows(kOp, in.y, in.x);
}

Status check_attributes(const Arguments& in) {
  if (Status s = check::window_sizes(kOp, in.compress_block_size, in.compress_stride)) return s;
  if (in.compress_block_size < in.compress_stride) {
    return fail(
        kParamInvalid, "%s: compressBlockSize is %lld; expected at least compressStride %lld", kOp,
        static_cast<long long>(in.compress_block_size), static_cast<long long>(in.compress_stride));
  }
  if (in.compress_block_size > kLongestWindow) {
    return fail(kParamInvalid, "%s: compressBlockSize is %lld; expected at most %lld", kOp,
                static_cast<long long>(in.compress_block_size),
                static_cast<long long>(kLongestWindow));
  }
  return check::sequence_kind(kOp, in.act_seq_len_type, "layoutOptional", in.layout);
}

Status check_ends(const Inputs& in) {
  if (in.ends.empty()) {
    return fail(kParamInvalid,
                "%s: actSeqLenOptional is null or empty; expected the cumulative ends of the "
                "sequences",
                kOp);
  }
  return check::sequence_ends(kOp, "actSeqLenOptional", in.ends, in.x);
}

// All checks but those of the launch; the sequences are found on the way.
Status check_all(const Arguments& arguments, Inputs& in, Problem& problem) {
  if (Status s = check_null(arguments)) return s;
  if (Status s = read_handles(arguments, in)) return s;
  if (Status s = check_dtypes(in)) return s;
  for (const Operand* operand : tensors(in)) {
    if (Status s = check::format(kOp, *operand)) return s;
  }
  if (Status s = check_ranks(in)) return s;
  if (Status s = check_shapes(in)) return s;
  if (Status s = check_attributes(arguments)) return s;
  if (Status s = check_ends(in)) return s;
  problem.tokens = in.x.dim(0);
  problem.heads = in.x.dim(1);
  problem.width = in.x.dim(2);
  problem.window = arguments.compress_block_size;
  problem.step = arguments.compress_stride;
  place_windows(problem, in.ends);
  if (Status s = check::window_counts(kOp, in.w, in.y, in.x, problem.window, problem.windows)) {
    return s;
  }
  for (const Operand* operand : tensors(in)) {
    if (Status s = check::sizes(kOp, *operand)) return s;
  }
  return kOk;
}

// x (covered rows), y, w.
double bytes_moved(const Problem& problem) {
  int64_t covered = 0;  // at most the tokens
  for (const Sequence& sequence : problem.sequences) {
    covered += (sequence.windows - 1) * problem.step + problem.window;
  }
  const auto heads = static_cast<double>(problem.heads);
  const double rows = static_cast<double>(covered) + static_cast<double>(problem.windows);
  const double elements = rows * heads * static_cast<double>(problem.width) +
                          static_cast<double>(problem.window) * heads;
  return elements * static_cast<double>(sizeof(uint16_t));
}

// A plan with more of them is not kept for the next call.
constexpr size_t kSequencesKept = 1024;

// The closed call.
struct Call {
  Problem problem;
  Plan plan;
  int x, w, y;

  Addresses addresses(const Run& run) const {
    Addresses at;
    at.x = run.address(x);
    at.w = run.address(w);
    at.y = run.address(y);
    return at;
  }
  void operator()(const Run& run) const { run_cpu(problem, plan, addresses(run)); }
  CudaAnswer on_cuda(const Run& run) const {
    return run_cuda(problem, addresses(run), run.queue());
  }
};

}  // namespace

void place_windows(Problem& problem, std::span<const int64_t> ends) {
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const int64_t length = end - begin;
    if (length >= problem.window) {
      const int64_t windows = (length - problem.window) / problem.step + 1;
      problem.sequences.push_back({begin, problem.windows, windows});
      problem.windows += windows;
    }
    begin = end;
  }
}

namespace {

// With tiles of at most so many columns.
Plan cut_in_tiles(const Problem& problem, int64_t tile_columns) {
  Plan plan;
  const auto head_floats = static_cast<int64_t>(Waiting(problem).head_floats);
  const int64_t most = std::min(tile_columns / problem.width, kTileFloats / head_floats);
  plan.block_heads = std::clamp<int64_t>(most, 1, problem.heads);
  plan.head_blocks = ceil_div(problem.heads, plan.block_heads);
  plan.block_heads = ceil_div(problem.heads, plan.head_blocks);
  const int64_t shared = problem.window - problem.step;
  const int64_t tokens = std::max(kBlockElements / (plan.block_heads * problem.width),
                                  kSharedPart * shared * problem.step / problem.window);
  plan.block_windows = ceil_div(tokens, problem.step);
  plan.window_blocks = ceil_div(problem.windows, plan.block_windows);
  return plan;
}

}  // namespace

Plan make_plan(const Problem& problem) {
  const Plan wide = cut_in_tiles(problem, kTileColumns);
  const bool enough =
      wide.window_blocks * wide.head_blocks >= kLeastBlocksOfThread * aclgrad_threads();
  return enough ? wide : cut_in_tiles(problem, kNarrowTileColumns);
}

Status parse(const Arguments& arguments, Launch& launch) {
  Inputs in;
  Call& call = launch.make<Call>();
  Problem& problem = call.problem;
  if (Status s = check_all(arguments, in, problem)) return s;
  if (problem.sequences.size() > kSequencesKept) launch.keep_nothing();

  call.x = launch.input(in.x, rows_of(1), &problem.x);
  call.w = launch.input(in.w, kAnyStrides, &problem.w);
  call.y = launch.output(in.y, rows_of(1), &problem.y);

  if (aclgrad_verbose()) {
    launch.describe(windows_problem_name("nsa_compress", problem.x, problem.window, problem.step,
                                         in.ends.size()),
                    bytes_moved(problem), aclgrad_active_target());
  }
  if (in.y.numel() == 0) return kOk;

  call.plan = make_plan(problem);
  launch.run(call);
  return kOk;
}

}  // namespace aclgrad::nsa_compress
