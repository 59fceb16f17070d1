// SPDX-License-Identifier: Apache-2.0
// A group's tokens and some of its heads: both gradients of a tile of heads, and how dx leaves
// where its rows are no whole lines.

#if defined(ACLGRAD_OPS_NSA_COMPRESS_GRAD_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_NSA_COMPRESS_GRAD_TILES_INL_H_
#undef ACLGRAD_OPS_NSA_COMPRESS_GRAD_TILES_INL_H_
#else
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_TILES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/rows_ahead.h"
#include "kernels/cpu/stage-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/nsa_compress_grad/groups.h"
#include "ops/nsa_compress_grad/job.h"
#include "ops/nsa_compress_grad/narrow-inl.h"
#include "ops/nsa_compress_grad/tokens-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::nsa_compress_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

HWY_INLINE bool is_narrow(const Job& job) { return is_narrow(job.problem.width, job.most_windows); }

// Heads that are visited together, where not one by one, and whose dx is collected together.
int64_t tile_heads(const Job& job) {
  if (is_narrow(job)) return narrow_heads(job.problem.width, job.most_windows);
  return kTileChains / job.most_windows;
}
int64_t collected_heads(const Job& job) {
  const Problem& problem = job.problem;
  if (problem.width <= kSegment && problem.heads <= kMostCollectedColumns / problem.width) {
    return problem.heads;
  }
  // Two heads of half lines end with a line.
  return kCollectedColumns / std::min(kSegment, problem.width) / 2 * 2;
}

// The tokens' sums or chains of dw go into the slab's totals.
HWY_INLINE void add_sums(const Job& job, int64_t slab, int64_t head, int64_t first, int64_t windows,
                         const float* sums) {
  double* totals = job.totals(slab, head) + first;
  for (int64_t a = 0; a < windows; ++a)
    add_to(totals + a * job.problem.step, load16(sums + a * kGroup));
}
HWY_INLINE void add_chains(const Job& job, int64_t slab, int64_t head, int64_t first,
                           int64_t windows, const float* chains) {
  double* totals = job.totals(slab, head) + first;
  for (int64_t a = 0; a < windows; ++a) {
    add_to(totals + a * job.problem.step,
           lane_sums(chains + static_cast<size_t>(a) * kTokens * kLanes));
  }
}

// Of a group's first token, in x or dx.
HWY_INLINE int64_t offset_in(const View& view, const Group& group, int64_t head, int64_t column) {
  return group.token * view.strides[0] + head * view.strides[1] + column;
}

template <class T>
HWY_INLINE Piece<T> piece_at(const Job& job, const Group& group, int64_t head, int64_t heads,
                             int64_t column) {
  const Problem& problem = job.problem;
  const int64_t columns = std::min(kSegment, problem.width - column);
  return Piece<T>{static_cast<const T*>(job.at.x) + offset_in(problem.x, group, head, column),
                  static_cast<T*>(job.at.dx) + offset_in(problem.dx, group, head, column),
                  problem.x.strides[0],
                  problem.x.strides[1],
                  problem.dx.strides[0],
                  problem.dx.strides[1],
                  static_cast<const T*>(job.at.dy) +
                      (group.latest - group.begin) * problem.dy.strides[0] +
                      head * problem.dy.strides[1] + column,
                  problem.dy.strides[0],
                  problem.dy.strides[1],
                  heads,
                  static_cast<size_t>(columns),
                  job.weights(head) + group.begin * problem.step + group.inside,
                  problem.step,
                  problem.window,
                  job.streaming,
                  !job.collect && is_in_the_way<T>(problem.x.strides[0], problem.dx.strides[0])};
}

// Up to a line of what was collected, in halves of a line: FP16, and what ends a row with half a
// pair of columns, was stored so, and a load of two such stores waits until both have left for L1,
// behind the streaming stores before them (bf16 7184x29x80, windows of 96 tokens every 16, Emerald
// Rapids: 4.7 -> 4.4 ms).
template <class D>
HWY_INLINE hn::Vec<D> load_collected(D d, const uint16_t* from) {
#if HWY_TARGET <= HWY_AVX3
  const hn::Half<D> half;
  return hn::Combine(d, hn::LoadU(half, from + kLanes), hn::LoadU(half, from));
#else
  return hn::LoadU(d, from);
#endif
}

// Past the caches, but for the lines at both ends that others may own a part of.
template <class T>
void stream_run(const T* from, T* to, int64_t elements) {
  const hn::CappedTag<uint16_t, kLineBytes / sizeof(uint16_t)> d;
  const auto* source = reinterpret_cast<const uint16_t*>(from);
  auto* out = reinterpret_cast<uint16_t*>(to);
  const auto count = static_cast<size_t>(elements);
  const size_t past_line = reinterpret_cast<uintptr_t>(to) % kLineBytes;
  const size_t before = past_line == 0 ? 0 : (kLineBytes - past_line) / sizeof(T);
  const size_t begin = HWY_MIN(before, count);
  const size_t end = count - (count - begin) % (kLineBytes / sizeof(T));
  std::memcpy(out, source, begin * sizeof(T));
  for (size_t i = begin; i < end; i += hn::Lanes(d)) {
    hn::Stream(load_collected(d, source + i), d, out + i);
  }
  std::memcpy(out + end, source + end, (count - end) * sizeof(T));
}

// Where collected dx belongs.
template <class T>
struct DxPlace {
  T* dx;
  int64_t token, head;  // strides
};

// dx as it was collected, [kGroup][heads][columns], in the longest runs that memory has.
template <class T>
void stream_collected(const DxPlace<T>& to, int64_t heads, int64_t columns, const T* from) {
  const int64_t row = heads * columns;
  if (row == to.token && (heads == 1 || columns == to.head)) {
    stream_run(from, to.dx, kGroup * row);
    return;
  }
  const int64_t run = columns == to.head ? row : columns;
  for (int64_t u = 0; u < kGroup; ++u) {
    for (int64_t c = 0; c < row; c += run) {
      stream_run(from + u * row + c, to.dx + u * to.token + c / columns * to.head, run);
    }
  }
}

// Where a tile's dx goes.
template <class T>
struct Way {
  bool streaming;     // past the caches
  T* dx = nullptr;    // here, the first head's; null: where it belongs
  int64_t token = 0;  // from token to token
};

// A tile of heads, all windows at once.
template <class T>
HWY_INLINE void visit_tile(const Job& job, const Group& group, int64_t slab, int64_t head,
                           int64_t heads, int64_t column, const Way<T>& way, Scratch& scratch) {
  const int64_t windows = group.end - group.begin;
  Piece<T> piece = piece_at<T>(job, group, head, heads, column);
  const size_t row = static_cast<size_t>(heads) * piece.columns;
  // The row of dy that the next window brings; the others were here with the last group.
  for (size_t c = 0; c < row; c += kLineBytes / sizeof(T)) {
    hwy::Prefetch(piece.dy + group.begin * piece.dy_window + piece.dy_window + c);
  }
  const RowsAhead<T> ahead{piece.x + job.tokens_ahead * piece.x_token, piece.x_token, kGroup, row};
  piece.streaming = way.streaming;
  if (way.dx != nullptr) {
    piece.dx = way.dx;
    piece.dx_token = way.token;
    piece.dx_head = static_cast<int64_t>(piece.columns);
  }
  const int64_t first = group.begin * job.problem.step + group.inside;
  if (is_narrow(job)) {
    visit_narrow_of(windows, piece, scratch.chains, ahead);
    for (int64_t h = 0; h < heads; ++h) {
      add_sums(job, slab, head + h, first, windows, scratch.chains + h * windows * kGroup);
    }
  } else {
    visit_tokens_of(windows, piece, scratch, ahead);
    for (int64_t h = 0; h < heads; ++h) {
      add_chains(job, slab, head + h, first, windows,
                 scratch.chains + h * windows * kGroup * static_cast<int64_t>(kLanes));
    }
  }
}

// Whether heads of dx, half a line each, come in pairs that are visited side by side, or one a
// token, which follow each other: to collect them would keep the store buffer waiting for all lines
// of a group at once (f16 1041667x1x16, windows of 96 tokens every 16, Emerald Rapids: 7.5 -> 5.3
// ms).
template <class T>
bool streams_halves(const Job& job, const T* dx) {
  constexpr auto kHalf = static_cast<int64_t>(kLanes);
  const Problem& problem = job.problem;
  const auto& strides = problem.dx.strides;
  if (problem.width != kHalf || !is_narrow(job) || !can_stream(dx)) return false;
  if (problem.heads == 1) return strides[0] == kHalf;
  return job.most_windows <= kMostPairedWindows && problem.heads % int64_t{kPairedHeads} == 0 &&
         strides[1] == kHalf && strides[0] % (2 * kHalf) == 0 && begins_line(dx);
}

// Heads from `head` on whose dx is collected, as many as there is room for, so that few lines are
// shared with the next ones; a tile at a time.
template <class T>
void visit_collected(const Job& job, const Group& group, int64_t slab, int64_t head, int64_t heads,
                     int64_t tile, int64_t column, Scratch& scratch) {
  const Problem& problem = job.problem;
  const View& dx = problem.dx;
  const int64_t columns = std::min(kSegment, problem.width - column);
  T* const to = static_cast<T*>(job.at.dx) + offset_in(dx, group, head, column);
  T* const collected = reinterpret_cast<T*>(scratch.collected);
  const bool streams = streams_halves(job, to);
  for (int64_t h = 0; h < heads; h += tile) {
    const Way<T> way =
        streams ? Way<T>{true} : Way<T>{false, collected + h * columns, heads * columns};
    visit_tile<T>(job, group, slab, head + h, std::min(tile, heads - h), column, way, scratch);
  }
  if (streams) return;
  stream_collected<T>({to, dx.strides[0], dx.strides[1]}, heads, columns, collected);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::nsa_compress_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
