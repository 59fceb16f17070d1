// SPDX-License-Identifier: Apache-2.0
// NsaCompress on the CPU, in scatter form: every covered token is read once, sixteen of them (a
// group) at a time, for all windows that cover them. A group is a chain in each of its windows;
// the chains that a window has so far wait in L1 for their partners. Blocks of work are ranges of
// windows and of heads.
#include <algorithm>
#include <cstddef>

#include "base/checked.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/parallel.h"
#include "ops/nsa_compress/chains.h"
#include "ops/nsa_compress/problem.h"
#include "ops/nsa_compress/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/nsa_compress/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/window_weights-inl.h"
#include "ops/nsa_compress/group-inl.h"

#ifndef ACLGRAD_OPS_NSA_COMPRESS_CPU_SHARED_
#define ACLGRAD_OPS_NSA_COMPRESS_CPU_SHARED_
namespace aclgrad::nsa_compress {
namespace {

// The most windows that cover a token, and the most groups of a window.
constexpr int64_t kMostWindows = kLongestWindow / kGroup;

// One run as the kernels see it.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  bool streaming;  // y does not fit the cache, and all its rows are aligned
  Waiting waiting;
};

// What a block works with besides the tensors: the FP32 weights of its heads, the sums that wait,
// and what becomes of a window's chains.
struct Scratch {
  alignas(64) float weights[kMostHeads * kLongestWindow];  // [heads][window]
  alignas(64) float waiting[kTileFloats];
  Next next[kMostWindows];
};

// Neighbouring windows of one sequence.
struct Stretch {
  int64_t token;  // first token of the first one
  int64_t first;  // among the windows of all sequences
  int64_t count;
};

// One of the windows that a group is added to.
struct Target {
  const Next* next;
  size_t slot;  // where its sums of a strip wait
};

}  // namespace
}  // namespace aclgrad::nsa_compress
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::nsa_compress {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// The group that begins `first` tokens into the stretch, for heads [begin, end).
template <class T>
void visit_group(const Job& job, const Stretch& stretch, int64_t first, int64_t begin, int64_t end,
                 Scratch& scratch) {
  const Problem& problem = job.problem;
  const auto& x = problem.x.strides;
  const auto& y = problem.y.strides;
  // Window `latest - a` has the group's first token at its token a * step + inside.
  const int64_t latest = first / problem.step;
  const int64_t inside = first - latest * problem.step;
  const int64_t a_begin = std::max<int64_t>(0, latest - stretch.count + 1);
  const int64_t a_end = std::min(latest + 1, ceil_div(problem.window - inside, problem.step));

  Target targets[kMostWindows];
  const size_t slots = job.waiting.slots;
  size_t slot = static_cast<size_t>(stretch.first + latest - a_begin) % slots;
  for (int64_t a = a_begin; a < a_end; ++a) {
    targets[a - a_begin] = {scratch.next + (a * problem.step + inside) / kGroup,
                            slot * job.waiting.slot_floats};
    slot = slot == 0 ? slots - 1 : slot - 1;
  }
  const int64_t groups = problem.window / kGroup;
  const bool in_turn =
      problem.step == kGroup && a_end - a_begin == groups && groups <= kMostTogether;

  const T* tokens = static_cast<const T*>(job.at.x) + (stretch.token + first) * x[0] + begin * x[1];
  RowsAhead<T> next_group{tokens + kGroup * x[0], x[0], kGroup,
                          static_cast<size_t>((end - begin) * problem.width)};
  for (int64_t a = a_begin; a < a_end; a += kMostTogether) {
    const Piece<T> piece{
        tokens,
        x[0],
        x[1],
        end - begin,
        static_cast<size_t>(problem.width),
        scratch.weights + a * problem.step + inside,
        problem.step,
        problem.window,
        static_cast<T*>(job.at.y) + (stretch.first + latest - a) * y[0] + begin * y[1],
        -y[0],
        y[1],
        scratch.waiting,
        job.waiting.strip_floats,
        targets + (a - a_begin),
        job.streaming};
    add_group_to(std::min(kMostTogether, a_end - a), in_turn, piece, next_group);
  }
}

// FP32 weights of heads [begin, end).
template <class T>
void convert_weights(const Job& job, int64_t begin, int64_t end, float* to) {
  const Problem& problem = job.problem;
  for (int64_t head = begin; head < end; ++head) {
    const T* from = static_cast<const T*>(job.at.w) + head * problem.w.strides[1];
    convert_window_weights(from, problem.w.strides[0], problem.window, to);
    to += problem.window;
  }
}

template <class T>
void block(const Job& job, int64_t index) {
  const Problem& problem = job.problem;
  const Plan& plan = job.plan;
  const int64_t head_begin = index % plan.head_blocks * plan.block_heads;
  const int64_t head_end = std::min(head_begin + plan.block_heads, problem.heads);
  const int64_t begin = index / plan.head_blocks * plan.block_windows;
  const int64_t end = std::min(begin + plan.block_windows, problem.windows);
  Scratch scratch;
  const int64_t groups = problem.window / kGroup;
  for (int64_t group = 0; group < groups; ++group) {
    scratch.next[group] = next_of(static_cast<size_t>(group), static_cast<size_t>(groups));
  }
  convert_weights<T>(job, head_begin, head_end, scratch.weights);
  auto sequence = std::upper_bound(problem.sequences.begin(), problem.sequences.end(), begin,
                                   [](int64_t window, const Sequence& candidate) {
                                     return window < candidate.first_window;
                                   }) -
                  1;
  for (int64_t window = begin; window < end; ++sequence) {
    const int64_t skipped = window - sequence->first_window;
    const Stretch stretch{sequence->token + skipped * problem.step, window,
                          std::min(sequence->windows - skipped, end - window)};
    const int64_t tokens = (stretch.count - 1) * problem.step + problem.window;
    for (int64_t first = 0; first < tokens; first += kGroup) {
      visit_group<T>(job, stretch, first, head_begin, head_end, scratch);
    }
    window += stretch.count;
  }
  if (job.streaming) hwy::FlushStream();
}

template <class T>
void run(const Job& job) {
  parallel_blocks(job.plan.window_blocks * job.plan.head_blocks,
                  [&](int64_t index) { block<T>(job, index); });
}
void run_f16(const Job& job) { run<float16_t>(job); }
void run_bf16(const Job& job) { run<bfloat16_t>(job); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::nsa_compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::nsa_compress {
namespace {

HWY_EXPORT(run_f16);
HWY_EXPORT(run_bf16);

// Streaming stores need every row of y aligned to a cache line.
bool should_stream(const Problem& problem, const void* y) {
  constexpr auto kElement = static_cast<int64_t>(sizeof(uint16_t));
  const auto lines = [&](int64_t elements) {
    return elements * kElement % static_cast<int64_t>(kLineBytes) == 0;
  };
  return outputs_should_stream(problem.y.numel() * kElement) &&
         reinterpret_cast<uintptr_t>(y) % kLineBytes == 0 && lines(problem.width) &&
         lines(problem.y.strides[0]) && lines(problem.y.strides[1]);
}

}  // namespace

void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at) {
  const Job job{problem, plan, at, should_stream(problem, at.y), Waiting(problem)};
  if (problem.x.dtype == ACL_FLOAT16) {
    HWY_DYNAMIC_DISPATCH(run_f16)(job);
  } else {
    HWY_DYNAMIC_DISPATCH(run_bf16)(job);
  }
}

}  // namespace aclgrad::nsa_compress
#endif  // HWY_ONCE
