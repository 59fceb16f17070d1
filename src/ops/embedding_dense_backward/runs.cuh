// SPDX-License-Identifier: Apache-2.0
// Long runs on a GPU: a block sums the segments that begin at its positions of the order, by a tile
// of columns.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_RUNS_CUH_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_RUNS_CUH_

#include <cstdint>

#include "ops/embedding_dense_backward/task.cuh"

namespace aclgrad::embedding_dense_backward::gpu {

constexpr int kStarts = kRunUnit / kLongRun;
constexpr int kCarried = -1;  // in their place: the segment of a run from before

template <int kColumns>
struct RunShared {
  int64_t keys[kRunUnit + kLongRun];
  int64_t starts[kStarts];  // of long runs, or kNone
  // Of each group of threads: the rows of its chain, and its sums. Twice, for this round and the
  // next one.
  int64_t offsets[2][kThreads / kLeastChainThreads][kChainRows];
  float sums[2][kThreads * kColumns];
};
constexpr int64_t kNone = -1;

struct Segment {
  int64_t row;
  int64_t begin, end;  // in the order
  int64_t run_length;
  int64_t slot;  // of the partial sums, or kNone: the segment is the run
};

// A group of threads in a segment: it takes every so many chains.
template <class T, int kColumns>
struct ChainReader {
  static constexpr int kBatch = kCudaTuning.chain_batch;

  const Task& task;
  RunShared<kColumns>& shared;
  const T* columns;  // of the first gradient row of dy; null: this thread has none
  int64_t first;     // entry of the segment
  int length;        // segments of more rows do not fit into any memory
  int group, lane, groups;

  Word<T, kColumns> values[kBatch];

  __device__ int rows_of(int round) const {
    const int left = length - (round * groups + group) * kChainRows;
    return left < kChainRows ? left : kChainRows;
  }
  // Of the row that this thread places.
  __device__ int64_t offset_of(int round) const {
    if (lane >= rows_of(round)) return 0;
    const int entry = (round * groups + group) * kChainRows + lane;
    return task.dy_places(task.positions[first + entry]);
  }
  __device__ void load_batch(int round, int from) {
    if (columns == nullptr) return;
    const int64_t* const offsets = shared.offsets[round % 2][group] + from;
    const int rows = rows_of(round) - from;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i < rows) values[i] = load<T, kColumns>(columns + offsets[i]);
    }
  }
  __device__ void add_batch(int round, int from, float (&sums)[kColumns]) const {
    if (columns == nullptr) return;
    const int rows = rows_of(round) - from;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i < rows) add<T>(values[i], sums);
    }
  }
  // Begins a round: its first loads are under way afterwards.
  __device__ void begin(int round, int64_t offset) {
    if (lane < kChainRows) shared.offsets[round % 2][group][lane] = offset;
    __syncwarp();
    load_batch(round, 0);
  }
};

// A column of a long run from its total.
template <class TOut>
__device__ void store_total(const Task& task, int64_t row, int64_t column, double total,
                            int64_t run_length) {
  const double divisor = task.scale_by_frequency ? static_cast<double>(run_length) : 1.0;
  static_cast<TOut*>(task.dw)[row * task.dw_stride + column] =
      cuda::narrow<TOut>(static_cast<float>(total / divisor));
}

// One segment by one tile of columns: the groups' chains, round by round, are added to the totals
// of the columns, each of which is a thread's. All threads of a block call it.
template <class T, class TOut, int kColumns>
__device__ void sum_segment(const Task& task, RunShared<kColumns>& shared, const Segment& segment,
                            int64_t tile) {
  const int width = task.plan.chain_threads;
  const int lane = thread_index() % width;
  const int64_t access = tile * width + lane;
  const T* const columns = static_cast<const T*>(task.dy) + access * kColumns;
  ChainReader<T, kColumns> reader{task,
                                  shared,
                                  access < task.plan.accesses ? columns : nullptr,
                                  segment.begin,
                                  static_cast<int>(segment.end - segment.begin),
                                  thread_index() / width,
                                  lane,
                                  thread_count() / width,
                                  {}};
  const int tile_columns = width * kColumns;
  const int chains = (reader.length + kChainRows - 1) / kChainRows;
  double total = 0.0;
  reader.begin(0, reader.offset_of(0));
  for (int round = 0; round * reader.groups < chains; ++round) {
    const int64_t next_offset = reader.offset_of(round + 1);
    float sums[kColumns] = {};
    reader.add_batch(round, 0, sums);
#pragma unroll
    for (int from = reader.kBatch; from < kChainRows; from += reader.kBatch) {
      reader.load_batch(round, from);
      reader.add_batch(round, from, sums);
    }
    float* const all = shared.sums[round % 2];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) all[thread_index() * kColumns + c] = sums[c];
    reader.begin(round + 1, next_offset);
    __syncthreads();
    if (thread_index() < tile_columns) {
      const int left = chains - round * reader.groups;
      const int count = left < reader.groups ? left : reader.groups;
      for (int i = 0; i < count; ++i) {
        total += static_cast<double>(all[i * tile_columns + thread_index()]);
      }
    }
  }
  __syncthreads();  // the next segment's sums come to the same place
  const int64_t column = tile * tile_columns + thread_index();
  if (thread_index() >= tile_columns || column >= task.cols) return;
  if (segment.slot == kNone) {
    store_total<TOut>(task, segment.row, column, total, segment.run_length);
  } else {
    task.partials[segment.slot * task.cols + column] = total;
  }
}

// What segment `number` of the run [begin, end) is.
__device__ inline Segment segment_of(const Task& task, int64_t key, int64_t begin, int64_t end,
                                     int64_t number) {
  const int64_t length = task.plan.segment;
  const int64_t segments = task.segments_of_run(end - begin);
  const int64_t first = begin + number * length;
  return {key, first, number + 1 == segments ? end : first + length, end - begin,
          segments == 1 ? kNone : first / length};
}

// The segment of a run from before position `unit` that begins in [unit, unit + kRunUnit); there is
// at most one. All warps call it. False: there is none.
__device__ inline bool find_carried(const Task& task, int64_t unit, Segment& segment) {
  const int64_t length = task.plan.segment;
  const int64_t key = task.keys[unit];
  // It is the run's second segment at least, and has its length: two entries that show it is not
  // there spare the search.
  const int64_t before = unit + kRunUnit - 1 - length;
  if (unit == 0 || !task.counts(key) || task.keys[unit - 1] != key) return false;
  if (before < 0 || unit + length > task.rows) return false;
  if (task.keys[before < unit ? before : unit - 1] != key) return false;
  if (task.keys[unit + length - 1] != key) return false;
  const auto is_before = [&](int64_t i) { return task.keys[i] < key; };
  const auto is_not_behind = [&](int64_t i) { return task.keys[i] <= key; };
  const int64_t begin = warp_partition_point(0, unit, is_before);
  const int64_t end = warp_partition_point(unit + length, task.rows, is_not_behind);
  const int64_t number = (unit - begin + length - 1) / length;
  if (number >= task.segments_of_run(end - begin)) return false;
  segment = segment_of(task, key, begin, end, number);
  return segment.begin < unit + kRunUnit;
}

// The first segment of the long run that begins at entry `begin`; keys[i] is the key of entry
// unit + i for i < known.
__device__ inline Segment first_segment(const Task& task, const int64_t* keys, int64_t unit,
                                        int known, int64_t begin) {
  const int64_t key = keys[begin - unit];
  const bool ends_here = keys[known - 1] != key;  // as most do
  const int64_t end = ends_here
                          ? unit + warp_partition_point(begin + kLongRun + 1 - unit, known,
                                                        [&](int64_t i) { return keys[i] <= key; })
                          : warp_partition_point(unit + known, task.rows,
                                                 [&](int64_t i) { return task.keys[i] <= key; });
  return segment_of(task, key, begin, end, 0);
}

// All threads of a block call it.
template <class T, class TOut, int kColumns>
__device__ void sum_long_runs(const Task& task, RunShared<kColumns>& shared, int64_t block) {
  const int64_t unit = block / task.plan.tiles * kRunUnit;
  const int64_t tile = block % task.plan.tiles;
  const auto limit_to = [&](int64_t position) {
    return position < task.rows ? position : task.rows;
  };
  const auto keys = static_cast<int>(limit_to(unit + kRunUnit + kLongRun) - unit);
  for (int i = thread_index(); i < keys; i += thread_count()) shared.keys[i] = task.keys[unit + i];
  for (int i = thread_index(); i < kStarts; i += thread_count()) shared.starts[i] = kNone;
  __syncthreads();
  // Long runs begin more than kLongRun apart, so each has a place of its own.
  for (int i = thread_index(); i < kRunUnit && i + kLongRun < keys; i += thread_count()) {
    const int64_t key = shared.keys[i];
    if (shared.keys[i + kLongRun] != key || !task.counts(key)) continue;
    const bool first = i > 0 ? shared.keys[i - 1] != key : unit == 0 || task.keys[unit - 1] != key;
    if (first) shared.starts[i / kLongRun] = unit + i;
  }
  __syncthreads();
  for (int i = kCarried; i < kStarts; ++i) {
    Segment segment;
    if (i == kCarried) {
      if (!find_carried(task, unit, segment)) continue;
    } else {
      const int64_t begin = shared.starts[i];
      if (begin == kNone) continue;
      segment = first_segment(task, shared.keys, unit, keys, begin);
    }
    sum_segment<T, TOut, kColumns>(task, shared, segment, tile);
  }
}

}  // namespace aclgrad::embedding_dense_backward::gpu

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_RUNS_CUH_
