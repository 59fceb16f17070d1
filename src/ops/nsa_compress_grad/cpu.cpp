// SPDX-License-Identifier: Apache-2.0
// NsaCompressGrad on the CPU, in gather form: every covered token is visited once. Its row of x is
// read, its row of dx is written from the few windows that cover it, and both go into dw. Sixteen
// tokens (a group) share their windows: a strip of columns at a time, the elements of dy they need
// are in registers (with many windows: in L1) for all of them.
// Blocks of work are slabs of groups; dw is joined from the slabs' totals at the end. Tokens that
// no window covers are blocks of their own.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/checked.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "ops/nsa_compress_grad/groups.h"
#include "ops/nsa_compress_grad/job.h"
#include "ops/nsa_compress_grad/problem.h"
#include "ops/nsa_compress_grad/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/nsa_compress_grad/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/cpu/window_weights-inl.h"
#include "ops/nsa_compress_grad/tiles-inl.h"
#include "ops/nsa_compress_grad/tokens-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::nsa_compress_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// FP32 rows of dy for the windows of one head: [windows][kSegment], in the order of load_pair.
template <class T>
HWY_INLINE void convert_dy(const Job& job, const T* from, int64_t windows, size_t columns,
                           float* to) {
  for (int64_t a = 0; a < windows; ++a) {
    size_t c = 0;
    for (; c + kPair <= columns; c += kPair) {
      const Pair pair = load_pair(from + c);
      store_raw(pair.first, to + c);
      store_raw(pair.second, to + c + kLanes);
    }
    if (c < columns) store_raw(load16(from + c), to + c);
    to += kWidest;
    from -= job.problem.dy.strides[0];  // a window later in the list starts earlier
  }
}

// Sixteen sums of dx from their FP32 chain, or from FP64 totals where there can be several chains.
HWY_INLINE F32x16 dx_sums(const Scratch& scratch, size_t at, bool several) {
  if (!several) return load16(scratch.dx + at);
  alignas(64) float rounded[kLanes];
  for (size_t i = 0; i < kLanes; ++i) rounded[i] = static_cast<float>(scratch.totals[at + i]);
  return load16(rounded);
}

template <class T>
void write_dx(const Piece<T>& piece, const Scratch& scratch, bool several) {
  for (size_t u = 0; u < kTokens; ++u) {
    T* dx = piece.dx + static_cast<int64_t>(u) * piece.dx_token;
    size_t c = 0;
    for (; c + kPair <= piece.columns; c += kPair) {
      Pair pair;
      pair.first = dx_sums(scratch, u * kWidest + c, several);
      pair.second = dx_sums(scratch, u * kWidest + c + kLanes, several);
      store_pair(pair, dx + c, piece.streaming);
    }
    if (c < piece.columns) store16(dx_sums(scratch, u * kWidest + c, several), dx + c);
  }
}

// One head with many windows: some of them at a time. Chains of dx end where the number of the
// window, counted from the latest possible one, is a multiple of kChain.
template <class T>
void visit_many(const Job& job, const Group& group, int64_t slab, int64_t head, int64_t column,
                Scratch& scratch) {
  constexpr auto kChainWindows = static_cast<int64_t>(kChain);
  constexpr auto kMost = static_cast<int64_t>(kMostTogether);
  const View& dy = job.problem.dy;
  const bool several = job.most_windows > kChainWindows;
  Piece<T> piece = piece_at<T>(job, group, head, 1, column);
  std::fill_n(scratch.dx, kGroup * kSegment, 0.0f);
  if (several) std::fill_n(scratch.totals, kGroup * kSegment, 0.0);
  for (int64_t a = group.begin; a < group.end;) {
    const int64_t left = std::min({group.end - a, kChainWindows - a % kChainWindows, kMost});
    const T* grads = static_cast<const T*>(job.at.dy) + (group.latest - a) * dy.strides[0] +
                     head * dy.strides[1] + column;
    convert_dy(job, grads, left, piece.columns, scratch.dy);
    const int64_t count = visit_some_of(left, piece, scratch);
    add_chains(job, slab, head, a * job.problem.step + group.inside, count, scratch.chains);
    a += count;
    piece.w += count * piece.w_window;
    if (several && (a == group.end || a % kChainWindows == 0)) {
      for (size_t i = 0; i < kTokens * kWidest; i += kLanes) {
        add_to(scratch.totals + i, load16(scratch.dx + i));
        store_raw(zero16(), scratch.dx + i);
      }
    }
  }
  write_dx(piece, scratch, several);
}

// Some heads of one slab of groups.
template <class T>
void visit_slab(const Job& job, int64_t slab, int64_t head_begin, int64_t head_end) {
  const Problem& problem = job.problem;
  const int64_t begin = slab * job.plan.slab_groups;
  const int64_t end = std::min(begin + job.plan.slab_groups, problem.groups);
  std::fill_n(job.totals(slab, head_begin), (head_end - head_begin) * problem.window, 0.0);
  const int64_t most = job.most_windows;
  const bool many = most > static_cast<int64_t>(kMostTogether);
  const bool collects = job.collect && !many;
  const int64_t tile = many ? 1 : tile_heads(job);
  const int64_t heads_together = collects ? collected_heads(job) : tile;
  Scratch scratch;
  auto sequence = std::upper_bound(problem.sequences.begin(), problem.sequences.end(), begin,
                                   [](int64_t group, const Sequence& candidate) {
                                     return group < candidate.first_group;
                                   }) -
                  1;
  for (int64_t index = begin; index < end; ++index) {
    const auto next = sequence + 1;
    if (next != problem.sequences.end() && index == next->first_group) sequence = next;
    const Group group = place_group(problem, *sequence, index);
    for (int64_t head = head_begin; head < head_end; head += heads_together) {
      const int64_t heads = std::min(heads_together, head_end - head);
      for (int64_t column = 0; column < problem.width; column += kSegment) {
        if (many) {
          visit_many<T>(job, group, slab, head, column, scratch);
        } else if (collects) {
          visit_collected<T>(job, group, slab, head, heads, tile, column, scratch);
        } else {
          visit_tile<T>(job, group, slab, head, heads, column, {job.streaming}, scratch);
        }
      }
    }
  }
  if (job.streaming || job.collect) hwy::FlushStream();
}

template <class T>
HWY_INLINE void write_zeros(T* to, int64_t count, bool streaming) {
  if (!streaming) {
    std::memset(static_cast<void*>(to), 0, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  const F32x16 zero = zero16();
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(kLanes)) stream16(zero, to + i);
}

// dx of uncovered tokens, numbered over all gaps, in [begin, end).
template <class T>
void fill_gaps(const Job& job, int64_t begin, int64_t end) {
  const Problem& problem = job.problem;
  const auto& strides = problem.dx.strides;
  const bool dense_heads = problem.heads == 1 || strides[1] == problem.width;
  const bool dense_tokens = dense_heads && strides[0] == problem.heads * problem.width;
  auto gap = std::upper_bound(
                 problem.gaps.begin(), problem.gaps.end(), begin,
                 [](int64_t token, const Gap& candidate) { return token < candidate.before; }) -
             1;
  while (begin < end) {
    const int64_t inside = begin - gap->before;
    const int64_t count = std::min(gap->tokens - inside, end - begin);
    T* to = static_cast<T*>(job.at.dx) + (gap->token + inside) * strides[0];
    if (dense_tokens) {
      write_zeros(to, count * problem.heads * problem.width, job.streaming);
    } else {
      const int64_t run = dense_heads ? problem.heads : 1;
      for (int64_t token = 0; token < count; ++token) {
        for (int64_t head = 0; head < problem.heads; head += run) {
          write_zeros(to + token * strides[0] + head * strides[1], run * problem.width,
                      job.streaming);
        }
      }
    }
    begin += count;
    ++gap;
  }
  if (job.streaming) hwy::FlushStream();
}

// FP32 weights of heads [begin, end).
template <class T>
void convert_weights(const Job& job, int64_t begin, int64_t end) {
  const Problem& problem = job.problem;
  for (int64_t head = begin; head < end; ++head) {
    const T* from = static_cast<const T*>(job.at.w) + head * problem.w.strides[1];
    convert_window_weights(from, problem.w.strides[0], problem.window, job.weights(head));
  }
}

// dw of heads [begin, end): the slabs' totals in order.
template <class T>
void join_slabs(const Job& job, int64_t begin, int64_t end) {
  const Problem& problem = job.problem;
  const int64_t dw_window = problem.dw.strides[0];
  for (int64_t head = begin; head < end; ++head) {
    T* to = static_cast<T*>(job.at.dw) + head * problem.dw.strides[1];
    for (int64_t first = 0; first < problem.window; first += kGroup) {
      alignas(64) double totals[kTokens] = {};
      for (int64_t slab = 0; slab < job.plan.slabs; ++slab) {
        const double* from = job.totals(slab, head) + first;
        for (size_t i = 0; i < kTokens; ++i) totals[i] += from[i];
      }
      if (dw_window == 1) {
        store16(round16(totals), to + first);
        continue;
      }
      alignas(64) T rounded[kTokens];
      store16(round16(totals), rounded);
      for (size_t i = 0; i < kTokens; ++i) {
        to[(first + static_cast<int64_t>(i)) * dw_window] = rounded[i];
      }
    }
  }
}

// dx and dw of the heads of a batch, and with the first one the tokens in gaps, by one thread.
template <class T>
void run_serial(const Job& job) {
  if (job.plan.slabs > 0) convert_weights<T>(job, job.first_head, job.end_head);
  for (int64_t slab = 0; slab < job.plan.slabs; ++slab) {
    visit_slab<T>(job, slab, job.first_head, job.end_head);
  }
  if (job.first_head == 0 && job.plan.gap_blocks > 0) {
    fill_gaps<T>(job, 0, job.problem.gap_tokens);
  }
  join_slabs<T>(job, job.first_head, job.end_head);
}

// The same in blocks.
template <class T>
void run_blocks(const Job& job) {
  const Plan& plan = job.plan;
  const int64_t heads = job.end_head - job.first_head;
  const int64_t head_blocks = ceil_div(heads, plan.block_heads);
  const int64_t visits = plan.slabs * head_blocks;
  const auto visit = [&](int64_t index) {
    if (index < visits) {
      const int64_t head = job.first_head + index % head_blocks * plan.block_heads;
      visit_slab<T>(job, index / head_blocks, head,
                    std::min(head + plan.block_heads, job.end_head));
    } else {
      const int64_t begin = (index - visits) * plan.gap_block;
      fill_gaps<T>(job, begin, std::min(begin + plan.gap_block, job.problem.gap_tokens));
    }
  };
  const auto heads_in_blocks = [&](auto&& body) {
    parallel_blocks(ceil_div(heads, plan.joined_heads), [&](int64_t index) {
      const int64_t begin = job.first_head + index * plan.joined_heads;
      body(begin, std::min(begin + plan.joined_heads, job.end_head));
    });
  };
  if (plan.slabs > 0) {
    heads_in_blocks([&](int64_t begin, int64_t end) { convert_weights<T>(job, begin, end); });
  }
  const int64_t blocks = visits + (job.first_head == 0 ? plan.gap_blocks : 0);
  if (blocks > 0) parallel_blocks(blocks, visit);
  heads_in_blocks([&](int64_t begin, int64_t end) { join_slabs<T>(job, begin, end); });
}

template <class T>
void run(const Job& job) {
  Job batch = job;
  for (int64_t head = 0; head < job.problem.heads; head = batch.end_head) {
    batch.first_head = head;
    batch.end_head = std::min(head + job.plan.batch_heads, job.problem.heads);
    job.plan.serial ? run_serial<T>(batch) : run_blocks<T>(batch);
  }
}

void run_f16(const Job& job) { run<float16_t>(job); }
void run_bf16(const Job& job) { run<bfloat16_t>(job); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::nsa_compress_grad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::nsa_compress_grad {
namespace {

HWY_EXPORT(run_f16);
HWY_EXPORT(run_bf16);

constexpr auto kElement = static_cast<int64_t>(sizeof(uint16_t));

// Streaming stores need every row of dx aligned to a cache line.
bool rows_are_lines(const Problem& problem, const void* dx) {
  // Of elements: a problem without any may have strides whose bytes no number holds.
  constexpr int64_t kLine = static_cast<int64_t>(kLineBytes) / kElement;
  const auto lines = [&](int64_t elements) { return elements % kLine == 0; };
  return reinterpret_cast<uintptr_t>(dx) % kLineBytes == 0 && lines(problem.width) &&
         lines(problem.dx.strides[0]) && lines(problem.dx.strides[1]);
}

// A group, or groups of 2 KiB: those of one narrow head are over before memory has answered (f16
// 520833x1x32, windows of 96 tokens every 16, Emerald Rapids: 3.9 -> 3.7 ms).
int64_t tokens_ahead(const View& x) {
  constexpr int64_t kLeast = 2048 / kElement;
  // Without elements the stride may be any number.
  const int64_t stride = std::abs(std::clamp(x.strides[0], -kLeast, kLeast));
  const int64_t token = std::max<int64_t>(1, stride);
  return kGroup * std::clamp(kLeast / (kGroup * token), int64_t{1}, int64_t{4});
}

}  // namespace

void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at) {
  const bool large = outputs_should_stream(problem.dx.numel() * kElement);
  const bool lines = rows_are_lines(problem, at.dx);
  // A client's memory may be aligned to less than an element; such lines cannot be streamed.
  const bool aligned = reinterpret_cast<uintptr_t>(at.dx) % kElement == 0;
  const Job job{problem,
                plan,
                at,
                large && lines,
                large && !lines && aligned,
                ceil_div(problem.window, problem.step),
                tokens_ahead(problem.x)};
  if (problem.x.dtype == ACL_FLOAT16) {
    HWY_DYNAMIC_DISPATCH(run_f16)(job);
  } else {
    HWY_DYNAMIC_DISPATCH(run_bf16)(job);
  }
}

}  // namespace aclgrad::nsa_compress_grad
#endif  // HWY_ONCE
