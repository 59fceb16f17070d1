// SPDX-License-Identifier: Apache-2.0
// Rows that lie in shared memory between their two visits, so that dy and x come from memory once:
// 6 bytes an element of FP16 instead of 10. Teams of threads sum along the rows; then every thread
// goes down some columns, writes dx, adds the terms of dgamma and dbeta, and calls the row that
// comes to the place of the one it has done. Copies of the next stage are under way all the time.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_STAGED_CUH_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_STAGED_CUH_

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/shared.cuh"
#include "ops/layer_norm_backward/row_sums.cuh"
#include "ops/layer_norm_backward/staged_rows.cuh"
#include "ops/layer_norm_backward/task.cuh"

namespace aclgrad::layer_norm_backward {

// A block of threads at work.
template <class T, int kAccesses>
class StagedBlock : public StagedRows {
 public:
  static constexpr int kCols = cuda::kAccess<T>;  // of one access
  static constexpr int kUnroll = kStaged.unroll[kAccesses <= 2 ? kAccesses - 1 : 2];

  __device__ StagedBlock(const Task& task, const StagedPlan& plan)
      : StagedRows(task, plan, sizeof(T)),
        row_accesses_(cols_ / kCols),
        group_(kAccesses == 1 ? cuda::thread_index() / row_accesses_ : 0),
        first_access_(kAccesses == 1 ? cuda::thread_index() - group_ * row_accesses_
                                     : cuda::thread_index()) {}

  __device__ void run_unit(int64_t unit) {
    begin_ = unit * plan_.unit_rows;
    end_ = begin_ + plan_.unit_rows < task_.rows ? begin_ + plan_.unit_rows : task_.rows;
    Stage stage{begin_, 0, 0};
    for (int slot = 0; slot < plan_.slots; ++slot) begin_stage(stage.behind(plan_, slot));
    if (cuda::thread_index() < 2) suspects()[cuda::thread_index()] = 0;
    float statistics[2] = {0.0f, 0.0f};
    read_statistics(stage, statistics);
    put_statistics(stage, statistics);
    int64_t block = 0;
    while (begin_ + block * kRowBlock < end_) {
      if (plan_.slots == 1) {
        cuda::wait<0>();
      } else {
        cuda::wait<1>();
      }
      __syncthreads();
      const Stage next = stage.behind(plan_, 1);
      read_statistics(next, statistics);
      describe_rows<T>(stage);
      if (task_.dx != nullptr) {
        sum_rows(stage);
        __syncthreads();
        if (cols_ > kChunk) {
          join_rows(stage);
          __syncthreads();
        }
        if (suspects()[stage.parity()] != 0) look_closer<T>(stage);
        if (cuda::thread_index() == 0) suspects()[next.parity()] = 0;
      } else {
        __syncthreads();
      }
      write_rows(stage);
      cuda::arrive();
      put_statistics(next, statistics);
      if (next.step == 0) {
        if (task_.want_columns) leave_chains(unit, block);
        block += plan_.groups;
      }
      stage = next;
    }
    if (plan_.parts.slab_totals && task_.want_columns) leave_totals(unit);
    cuda::wait<0>();
    __syncthreads();  // the next unit begins where all have ended
  }

 private:
  // This thread's columns of a row begin here; -1: it has none there.
  __device__ int col_of(int access) const {
    const int number = first_access_ + access * cuda::thread_count();
    return group_ < plan_.groups && number < row_accesses_ ? number * kCols : -1;
  }

  // A thread calls what it will read in the second visit, and no other: it alone knows when the
  // place is free.
  __device__ void begin_stage(const Stage& stage) {
    for (int step = 0; step < plan_.stage_rows && group_ < plan_.groups; ++step) {
      const int place = group_ * plan_.stage_rows + step;
      const int64_t row = row_at(stage, place);
      if (row < 0) break;
      const T* const dy = static_cast<const T*>(task_.dy) + task_.dy_rows(row);
      const T* const x = static_cast<const T*>(task_.x) + task_.x_rows(row);
      T* const to = slot_at<T>(stage, place);
      for (int access = 0; access < kAccesses; ++access) {
        const int col = col_of(access);
        if (col < 0) continue;
        cuda::copy_async(to + col, dy + col);
        cuda::copy_async(to + cols_ + col, x + col);
      }
    }
    cuda::arrive();
  }

  // First visit: a team takes a chunk of a row.
  __device__ void sum_rows(const Stage& stage) const {
    constexpr int kTeamsOfWarp = cuda::kWarpLanes / kTeam;
    const int chunks = static_cast<int>(chunks_of(cols_));
    const int pieces = plan_.rows() * chunks;
    const int team = cuda::lane_index() / kTeam;
    for (int first = cuda::warp_index() * kTeamsOfWarp; first < pieces;
         first += cuda::warp_count() * kTeamsOfWarp) {
      const int piece = first + team;
      const int place = piece / chunks;
      const int chunk = piece - place * chunks;
      const bool present = piece < pieces && row_at(stage, place) >= 0;
      const int begin = chunk * static_cast<int>(kChunk);
      const int left = cols_ - begin;
      const int count = present ? (left < kChunk ? left : static_cast<int>(kChunk)) : 0;
      const float* const statistics = statistics_of(stage, present ? place : 0);
      const float mean = statistics[0];
      const T* const dy_row = slot_at<T>(stage, present ? place : 0) + begin;
      const T* const x_row = dy_row + cols_;
      const float* const gamma_row = gamma() + begin;
      Chains chains;
      add_columns<kUnroll>(
          count, mean,
          [&](int col, float(&dy)[kOwnCols], float(&x)[kOwnCols], float(&gamma)[kOwnCols]) {
            const auto dys = cuda::load_several<kOwnCols>(dy_row + col);
            const auto xs = cuda::load_several<kOwnCols>(x_row + col);
            const auto gammas = cuda::load_several<kOwnCols>(gamma_row + col);
#pragma unroll
            for (int i = 0; i < kOwnCols; ++i) {
              dy[i] = cuda::widen(dys.each[i]);
              x[i] = cuda::widen(xs.each[i]);
              gamma[i] = gammas.each[i];
            }
          },
          chains);
      const LaneSums sums = join_vectors<T>(chains, cols_);
      if (chunks > 1) {
        if (!present) continue;
        float* const to = lane_sums(place) + chunk * kChunkSums + lane_place<T>();
        to[0] = sums.lane[0];
        to[1] = sums.lane[1];
      } else {
        const Sums joined = join_lanes<T>(sums);
        if (present && cuda::lane_index() % kTeam == 0) put_means(stage, place, joined);
      }
    }
  }

  __device__ void put_means(const Stage& stage, int place, const Sums& sums) const {
    StagedRow& row = row_of(place);
    const float rstd = statistics_of(stage, place)[1];
    const Sums means = means_of(sums, rstd, task_.reciprocal_cols);
    row.mean_g = static_cast<float>(means.g);
    row.mean_gx = static_cast<float>(means.gx);
    if (is_suspect(row.mean_g, row.mean_gx, rstd)) suspects()[stage.parity()] = 1;
  }

  __device__ void join_rows(const Stage& stage) const {
    for (int place = cuda::warp_index(); place < plan_.rows(); place += cuda::warp_count()) {
      if (row_at(stage, place) < 0) continue;
      const int64_t chunks = chunks_of(cols_);
      const Sums sums = join_chunks(lane_sums(place), chunks, chunks);
      if (cuda::lane_index() == 0) put_means(stage, place, sums);
    }
    // suspects() is asked behind the barrier that follows.
  }

  // Second visit: down the columns of this thread.
  __device__ void write_rows(const Stage& stage) {
    const bool first = stage.step == 0;
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if (first) chains_[access].clear();
      const int col = col_of(access);
      if (col < 0) continue;
      float factor[kCols];
#pragma unroll
      for (int i = 0; i < kCols; i += 4) {
        const auto four = cuda::load_several<4>(gamma() + col + i);
#pragma unroll
        for (int j = 0; j < 4; ++j) factor[i + j] = four.each[j];
      }
#pragma unroll 1
      for (int step = 0; step < plan_.stage_rows; ++step) {
        const int place = group_ * plan_.stage_rows + step;
        if ((row_of(place).flags & kPresent) == 0) break;
        write_row(stage, place, col, factor, chains_[access]);
      }
    }
  }

  __device__ void write_row(const Stage& stage, int place, int col, const float (&factor)[kCols],
                            ColumnChains<kCols>& chains) {
    const StagedRow& row = row_of(place);
    const float mean = statistics_of(stage, place)[0];
    const float rstd = statistics_of(stage, place)[1];
    T* const dy_at = slot_at<T>(stage, place) + col;
    T* const x_at = dy_at + cols_;
    const auto dys = cuda::load_several<kCols>(dy_at);
    const auto xs = cuda::load_several<kCols>(x_at);
    float dy[kCols], x[kCols];
#pragma unroll
    for (int i = 0; i < kCols; ++i) {
      dy[i] = cuda::widen(dys.each[i]);
      x[i] = cuda::widen(xs.each[i]);
    }
    const uint32_t flags = row.flags;
    if ((flags & kHasNext) != 0) {
      cuda::copy_async(dy_at, static_cast<const T*>(task_.dy) + row.dy_next + col);
      cuda::copy_async(x_at, static_cast<const T*>(task_.x) + row.x_next + col);
    }
    if (task_.want_columns) {
      if ((flags & kNearZero) == 0) {
#pragma unroll
        for (int i = 0; i < kCols; ++i) {
          add_terms(dy[i], x[i], mean, rstd, false, chains.dgamma[i], chains.dbeta[i]);
        }
      } else {
#pragma unroll
        for (int i = 0; i < kCols; ++i) {
          add_terms(dy[i], x[i], mean, rstd, true, chains.dgamma[i], chains.dbeta[i]);
        }
      }
    }
    if (task_.dx == nullptr) return;
    float dx[kCols];
    if ((flags & kExact) == 0) {
#pragma unroll
      for (int i = 0; i < kCols; ++i) {
        dx[i] = dx_of(dy[i], x[i], factor[i], mean, rstd, row.mean_g, row.mean_gx);
      }
    } else {
      const Sums means{row.exact_g, row.exact_gx};
#pragma unroll
      for (int i = 0; i < kCols; ++i) {
        dx[i] = exact_dx_of(dy[i], x[i], factor[i], mean, rstd, means);
      }
    }
    T* const to = static_cast<T*>(task_.dx) + row.dx + col;
    *reinterpret_cast<cuda::Several<T, kCols>*>(to) = cuda::narrow_several<T>(dx);
  }

  // The chains of row blocks [block, block + groups) of the unit are full.
  __device__ void leave_chains(int64_t unit, int64_t block) {
    const int64_t own = block + group_;
    const bool present = group_ < plan_.groups && begin_ + own * kRowBlock < end_;
    if (!plan_.parts.slab_totals) {
      const int64_t number = unit * (plan_.unit_rows / kRowBlock) + own;
      float* const to = static_cast<float*>(task_.parts) + number * 2 * task_.cols;
      if (present) put_chains(to);
      return;
    }
    if (plan_.groups == 1) {
      add_own_chains(block == 0);
      return;
    }
    if (present) put_chains(exchange() + group_ * 2 * cols_);
    __syncthreads();
    const int64_t blocks = ceil_div(end_ - begin_, kRowBlock) - block;
    for (int i = cuda::thread_index(); i < 2 * cols_; i += cuda::thread_count()) {
      double total = block == 0 ? 0.0 : totals()[i];
      for (int group = 0; group < plan_.groups && group < blocks; ++group) {
        const auto chain = static_cast<double>(exchange()[group * 2 * cols_ + i]);
        total = block + group == 0 ? chain : total + chain;
      }
      totals()[i] = total;
    }
  }
  __device__ void put_chains(float* to) const {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      const int col = col_of(access);
      if (col >= 0) chains_[access].put(to + col, to + cols_ + col);
    }
  }
  __device__ void add_own_chains(bool first) const {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      const int col = col_of(access);
      if (col >= 0) chains_[access].add_to(totals() + col, totals() + cols_ + col, first);
    }
  }
  __device__ void leave_totals(int64_t unit) const {
    __syncthreads();
    double* const to = static_cast<double*>(task_.parts) + unit * 2 * task_.cols;
    for (int i = cuda::thread_index(); i < 2 * cols_; i += cuda::thread_count()) {
      to[i] = totals()[i];
    }
  }

  const int row_accesses_;
  const int group_;  // the row block of those that are taken together
  const int first_access_;
  ColumnChains<kCols> chains_[kAccesses];
};

template <class T, int kAccesses>
__global__ void __launch_bounds__(kStaged.most_threads)
    staged_rows(const __grid_constant__ Task task, const __grid_constant__ StagedPlan plan) {
  StagedBlock<T, kAccesses> block(task, plan);
  block.load_gamma();
  for (int64_t unit = cuda::block_index(); unit < plan.units; unit += cuda::block_count()) {
    block.run_unit(unit);
  }
}

template <class T>
cudaError_t launch_staged(const Task& task, const StagedPlan& plan, const CudaQueue& queue) {
  const cuda::Geometry geometry{cuda::blocks_for(plan.units), static_cast<unsigned>(plan.threads),
                                static_cast<size_t>(plan.shared)};
  switch (plan.accesses) {
    case 1:
      return cuda::launch(queue, geometry, staged_rows<T, 1>, task, plan);
    case 2:
      return cuda::launch(queue, geometry, staged_rows<T, 2>, task, plan);
    case 4:
      return cuda::launch(queue, geometry, staged_rows<T, 4>, task, plan);
    default:
      if constexpr (8 * cuda::kAccess<T> <= kMostOwnCols) {
        return cuda::launch(queue, geometry, staged_rows<T, 8>, task, plan);
      } else {
        return cudaErrorInvalidConfiguration;  // plan_staged() has none
      }
  }
}

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_STAGED_CUH_
