// SPDX-License-Identifier: Apache-2.0
// How NsaCompressGrad is cut on a GPU, from the shape alone. The sums do not depend on it: slabs
// and groups are those of tree.h.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_GRAD_PLAN_H_
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_PLAN_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>

#include "base/checked.h"
#include "kernels/cuda/geometry.h"
#include "ops/nsa_compress_grad/problem.h"
#include "ops/nsa_compress_grad/tree.h"

namespace aclgrad::nsa_compress_grad {

struct CudaTuning {
  int least_teams;          // of a block; sixteen threads each
  int64_t visits;           // groups that a team of a block takes one after the other
  int64_t value_floats;     // sums of dw that a block keeps until they are added: 16 KB
  int64_t shared_window;    // FP32 weights that a block keeps
  int64_t gap_bytes;        // of dx that a block fills with zeros
  int join_slabs;           // that a block of the join loads side by side
  int64_t convert_threads;  // of a block
};
inline constexpr CudaTuning kCudaTuning = {8, 4, 4096, 1024, 64 << 10, 16, 256};

// The kernel of so many windows of a token at most, and pairs of columns of a thread.
struct VisitTuning {
  int windows, pairs;
  int most_teams;  // of a block: a thread has the registers that these leave it
  bool wide;       // a thread keeps its columns of dy as FP32, not as they come
  // Tokens whose columns of x are under way, of BF16 and of FP16, whose elements come one by one
  // and take a register each.
  int tokens_bf16, tokens_f16;
};
// Counted, not measured: an H200 has 4.3 TB/s and answers after 0.8 us, so 13 KB of x have to be
// under way on each of its 132 multiprocessors. One holds 32 teams with 128 registers a thread, or
// 16 with 255; a team has eight tokens of two windows and 128 columns, 256 bytes each, under way:
// 64 KB (of four windows 32, of eight 16). Eight pairs of more than two windows want more than 128
// registers (spilt: 232 to 776 bytes a thread), eight windows of four pairs hardly (72 and 140).
// 65536 tokens of 4 heads of 128 are 512 blocks of 4 warps: all of them run at once.
inline constexpr VisitTuning kVisits[] = {{2, 4, 32, true, 8, 4}, {2, 8, 32, true, 4, 2},
                                          {4, 4, 32, true, 4, 4}, {4, 8, 16, true, 4, 2},
                                          {8, 4, 32, true, 2, 2}, {8, 8, 16, false, 1, 1}};
inline constexpr int64_t kMostWindows = std::end(kVisits)[-1].windows;

constexpr VisitTuning visit_tuning(int windows, int pairs) {
  const VisitTuning* entry = kVisits;
  while (entry->windows != windows || entry->pairs != pairs) ++entry;
  return *entry;
}

inline constexpr int kTeam = static_cast<int>(kLanes);
inline constexpr auto kPairColumns = static_cast<int64_t>(kPair);

// Sequences and gaps that travel with the kernels' own launches. More are written to the workspace
// first, by launches that bring so many words each: 3.5 KB, of the 4 that every GPU takes. A copy
// of the host's memory would have CUDA wait for the stream.
inline constexpr int kFew = 32;
inline constexpr int kListWords = 448;

// Bytes of workspace for both lists, gaps behind sequences; 0: they are few.
inline int64_t list_bytes(const Problem& problem) {
  const auto sequences = static_cast<int64_t>(problem.sequences.size());
  const auto gaps = static_cast<int64_t>(problem.gaps.size());
  if (sequences <= kFew && gaps <= kFew) return 0;
  return sequences * static_cast<int64_t>(sizeof(Sequence)) +
         gaps * static_cast<int64_t>(sizeof(Gap));
}

struct CudaPlan {
  int64_t segments = 0;      // of a row, kSegment columns each
  int64_t most_windows = 0;  // of a token
  int windows = 0;           // taken together: 2, 4 or 8; 0: the kernel for any shape
  int pairs = 0;             // of columns that a thread has room for: 4 or 8
  bool half = false;         // the last pair of a row has only sixteen columns
  int teams = 0;             // of a block
  int64_t chunk = 0;         // visits of a block before their sums of dw are added
  int64_t visit_blocks = 0;  // one a slab and head
  bool shared_weights = false;
  int64_t gap_tokens = 0;  // of a block
  int64_t gap_blocks = 0;
  int64_t join_blocks = 0;  // sixteen weights of a head each

  cuda::Geometry convert, visit, join;
};

// `pairs_fit`: that every pair of columns can be taken in one access.
inline CudaPlan plan_cuda(const Problem& problem, const Plan& plan, bool pairs_fit) {
  const auto power = [](int64_t value) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
  };
  CudaPlan out;
  out.segments = ceil_div(problem.width, kSegment);
  out.most_windows = ceil_div(problem.window, problem.step);
  const bool usual = pairs_fit && out.most_windows <= kMostWindows;
  if (usual) out.windows = static_cast<int>(power(out.most_windows));  // a token has two or more
  out.half = problem.width % kPairColumns != 0;
  out.pairs = problem.width <= kSegment / 2 && !out.half ? 4 : 8;
  // For any shape a team takes one of the sixteen tokens.
  out.teams = static_cast<int>(kGroup);
  const int64_t visits = std::min(plan.slab_groups, problem.groups) * out.segments;
  if (usual) {
    const int64_t teams = power(ceil_div(std::max<int64_t>(visits, 1), kCudaTuning.visits));
    out.teams = static_cast<int>(std::clamp<int64_t>(
        teams, kCudaTuning.least_teams, visit_tuning(out.windows, out.pairs).most_teams));
    out.chunk = kCudaTuning.value_floats / (out.windows * kGroup);
  }
  out.visit_blocks = plan.slabs * problem.heads;
  out.shared_weights = problem.window <= kCudaTuning.shared_window;
  const int64_t row_bytes =
      std::max<int64_t>(problem.heads * problem.width * static_cast<int64_t>(sizeof(uint16_t)), 1);
  out.gap_tokens = std::max<int64_t>(kCudaTuning.gap_bytes / row_bytes, 1);
  out.gap_blocks = problem.width == 0 ? 0 : ceil_div(problem.gap_tokens, out.gap_tokens);
  out.join_blocks = problem.heads * (problem.window / kGroup);
  const auto launch = [](int64_t pieces, int64_t threads) {
    return cuda::Geometry{cuda::blocks_for(pieces), static_cast<unsigned>(threads)};
  };
  if (out.visit_blocks > 0 && !out.shared_weights) {
    out.convert = launch(ceil_div(problem.heads * problem.window, kCudaTuning.convert_threads),
                         kCudaTuning.convert_threads);
  }
  out.visit = launch(out.visit_blocks, int64_t{out.teams} * kTeam);
  out.join = launch(out.join_blocks + out.gap_blocks, kCudaTuning.join_slabs * kGroup);
  return out;
}

}  // namespace aclgrad::nsa_compress_grad

#endif  // ACLGRAD_OPS_NSA_COMPRESS_GRAD_PLAN_H_
