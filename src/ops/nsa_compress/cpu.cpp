// SPDX-License-Identifier: Apache-2.0
// NsaCompress on the CPU, in scatter form: every covered token is read once, sixteen of them (a
// group) at a time, for all windows that cover them. A group is a chain in each of its windows;
// the chains that a window has so far wait in L1 for their partners. Blocks of work are ranges of
// windows and of heads.
#include <algorithm>
#include <cstddef>

#include "base/checked.h"
#include "base/half.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/parallel.h"
#include "ops/nsa_compress/problem.h"
#include "ops/nsa_compress/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/nsa_compress/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/pairs-inl.h"

#ifndef ACLGRAD_OPS_NSA_COMPRESS_CPU_SHARED_
#define ACLGRAD_OPS_NSA_COMPRESS_CPU_SHARED_
namespace aclgrad::nsa_compress {
namespace {

// The most windows that cover a token.
constexpr int64_t kMostWindows = kLongestWindow / kGroup;

// One run as the kernels see it.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  bool streaming;  // y does not fit the cache, and all its rows are aligned
};

// What a block works with besides the tensors: the FP32 weights of its heads, and the sums that
// wait, of window i in slot i mod kMostWindows.
struct Scratch {
  alignas(64) float weights[kTileColumns / kGroup * kLongestWindow];  // [heads][window]
  alignas(64) float waiting[kMostWindows][kLevels][kTileColumns];
};

// A group's columns lie in sixteen rows, which the hardware's own prefetching does not follow. The
// next group is prefetched meanwhile, line after line as it lies in memory: that it does follow. A
// core reads 16 GB/s so, and 10 when each line is prefetched sixteen rows ahead (Zen 4).
template <class T>
struct Ahead {
  const T* row;
  int64_t stride;
  size_t columns;
  size_t column = 0;

  HWY_INLINE void next_line() {
    hwy::Prefetch(row + column);
    column += kLineBytes / sizeof(T);
    if (column >= columns) {
      column = 0;
      row += stride;
    }
  }
};

// Neighbouring windows of one sequence.
struct Stretch {
  int64_t token;  // first token of the first one
  int64_t first;  // among the windows of all sequences
  int64_t count;
};

// What becomes of a window's chain of one group: the sums that it is added to, in order, then
// either the place where it waits or its place in y.
template <class T>
struct Next {
  const float* partners[kLevels];
  size_t count = 0;
  float* wait = nullptr;
  T* y = nullptr;
};

// The chain of `group` of a window; `columns` of its slot and y are those of the head.
template <class T>
Next<T> next_of(const Problem& problem, int64_t group, float* slot, T* y) {
  Next<T> out;
  const bool last = group + 1 == problem.window / kGroup;
  int64_t bits = group;
  int64_t level = 0;
  for (; (bits & 1) != 0 || (last && bits != 0); bits >>= 1, ++level) {
    if ((bits & 1) != 0) out.partners[out.count++] = slot + level * kTileColumns;
  }
  if (last) {
    out.y = y;
  } else {
    out.wait = slot + level * kTileColumns;
  }
  return out;
}

}  // namespace
}  // namespace aclgrad::nsa_compress
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::nsa_compress {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Windows that are taken together: as many as find room in registers for their chains. Does not
// influence the bits.
constexpr int64_t kMostTogether = kParts == 1 ? 8 : kParts == 16 ? 1 : 2;

template <class T>
HWY_INLINE F32x16 with_partners(F32x16 sum, const Next<T>& next, size_t c) {
  for (size_t i = 0; i < next.count; ++i) sum = add(load16(next.partners[i] + c), sum);
  return sum;
}

// A head's columns of a group.
template <class T>
struct Piece {
  const T* x;
  int64_t stride;  // of tokens
  size_t columns;
  bool streaming;
};

// R windows at once; their weights for the group's first token are `step` apart.
template <size_t R, class T>
void add_group(const Piece<T>& piece, const float* weights, int64_t step, const Next<T>* next,
               Ahead<T>& ahead) {
  constexpr auto kTokens = static_cast<size_t>(kGroup);
  const auto weight = [&](size_t r, size_t u) HWY_ATTR {
    return set16(weights[static_cast<int64_t>(r) * step + static_cast<int64_t>(u)]);
  };
  size_t c = 0;
  for (; c + kPair <= piece.columns; c += kPair) {
    Pair sums[R];
    for (size_t r = 0; r < R; ++r) sums[r].first = sums[r].second = zero16();
    const T* x = piece.x + c;
    for (size_t u = 0; u < kTokens; ++u, x += piece.stride) {
      ahead.next_line();
      const Pair value = load_pair(x);
      for (size_t r = 0; r < R; ++r) {
        const F32x16 w = weight(r, u);
        sums[r].first = fma(w, value.first, sums[r].first);
        sums[r].second = fma(w, value.second, sums[r].second);
      }
    }
    for (size_t r = 0; r < R; ++r) {
      Pair sum;
      sum.first = with_partners(sums[r].first, next[r], c);
      sum.second = with_partners(sums[r].second, next[r], c + kLanes);
      if (next[r].wait != nullptr) {
        store_raw(sum.first, next[r].wait + c);
        store_raw(sum.second, next[r].wait + c + kLanes);
      } else {
        store_pair(sum, next[r].y + c, piece.streaming);
      }
    }
  }
  if (c == piece.columns) return;
  for (size_t r = 0; r < R; ++r) {
    F32x16 sum = zero16();
    const T* x = piece.x + c;
    for (size_t u = 0; u < kTokens; ++u, x += piece.stride) {
      sum = fma(weight(r, u), load16(x), sum);
    }
    sum = with_partners(sum, next[r], c);
    if (next[r].wait != nullptr) {
      store_raw(sum, next[r].wait + c);
    } else {
      store16(sum, next[r].y + c);
    }
  }
}

template <int64_t R = kMostTogether, class T>
void add_group_to(int64_t windows, const Piece<T>& piece, const float* weights, int64_t step,
                  const Next<T>* next, Ahead<T>& ahead) {
  if (windows == R) {
    add_group<static_cast<size_t>(R)>(piece, weights, step, next, ahead);
  } else if constexpr (R > 1) {
    add_group_to<R - 1>(windows, piece, weights, step, next, ahead);
  }
}

// The group that begins `first` tokens into the stretch, for heads [begin, end).
template <class T>
void visit_group(const Job& job, const Stretch& stretch, int64_t first, int64_t begin, int64_t end,
                 Scratch& scratch) {
  const Problem& problem = job.problem;
  // Window `latest - a` has the group's first token at its token a * step + inside.
  const int64_t latest = first / problem.step;
  const int64_t inside = first - latest * problem.step;
  const int64_t a_begin = std::max<int64_t>(0, latest - stretch.count + 1);
  const int64_t a_end = std::min(latest + 1, ceil_div(problem.window - inside, problem.step));
  const int64_t columns = (end - begin) * problem.width;
  Ahead<T> ahead{static_cast<const T*>(job.at.x) +
                     (stretch.token + first + kGroup) * problem.x.strides[0] +
                     begin * problem.x.strides[1],
                 problem.x.strides[0], static_cast<size_t>(columns)};
  for (int64_t head = begin; head < end; ++head) {
    const Piece<T> piece{static_cast<const T*>(job.at.x) +
                             (stretch.token + first) * problem.x.strides[0] +
                             head * problem.x.strides[1],
                         problem.x.strides[0], static_cast<size_t>(problem.width), job.streaming};
    const float* weights = scratch.weights + (head - begin) * problem.window;
    for (int64_t a = a_begin; a < a_end; a += kMostTogether) {
      const int64_t windows = std::min(kMostTogether, a_end - a);
      Next<T> next[kMostTogether];
      for (int64_t r = 0; r < windows; ++r) {
        const int64_t window = stretch.first + latest - a - r;
        const int64_t token = (a + r) * problem.step + inside;
        next[r] =
            next_of(problem, token / kGroup,
                    scratch.waiting[window % kMostWindows][0] + (head - begin) * problem.width,
                    static_cast<T*>(job.at.y) + window * problem.y.strides[0] +
                        head * problem.y.strides[1]);
      }
      add_group_to(windows, piece, weights + a * problem.step + inside, problem.step, next, ahead);
    }
  }
}

// FP32 weights of heads [begin, end).
template <class T>
void convert_weights(const Job& job, int64_t begin, int64_t end, float* to) {
  const Problem& problem = job.problem;
  for (int64_t head = begin; head < end; ++head) {
    const T* from = static_cast<const T*>(job.at.w) + head * problem.w.strides[1];
    for (int64_t j = 0; j < problem.window; ++j) *to++ = to_float(from[j * problem.w.strides[0]]);
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
  const Job job{problem, plan, at, should_stream(problem, at.y)};
  if (problem.x.dtype == ACL_FLOAT16) {
    HWY_DYNAMIC_DISPATCH(run_f16)(job);
  } else {
    HWY_DYNAMIC_DISPATCH(run_bf16)(job);
  }
}

}  // namespace aclgrad::nsa_compress
#endif  // HWY_ONCE
