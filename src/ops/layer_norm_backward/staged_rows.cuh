// SPDX-License-Identifier: Apache-2.0
// The shared memory of a block of threads, the rows that are staged there, and what is known of
// each; the chains of a thread's columns.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_STAGED_ROWS_CUH_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_STAGED_ROWS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/shared.cuh"
#include "ops/layer_norm_backward/row_sums.cuh"
#include "ops/layer_norm_backward/task.cuh"

namespace aclgrad::layer_norm_backward {

// StagedRow::flags.
inline constexpr uint32_t kPresent = 1, kHasNext = 2, kNearZero = 4, kExact = 8;

// Rows that are worked at together: `stage_rows` of each of `groups` row blocks.
struct Stage {
  int64_t first;   // row of place 0
  int64_t number;  // in the unit
  int step;        // of its row blocks

  // The one `count` further on.
  __device__ Stage behind(const StagedPlan& plan, int count) const {
    Stage out = *this;
    for (int i = 0; i < count; ++i) {
      ++out.number;
      out.first += plan.stage_rows;
      if (++out.step < static_cast<int>(kRowBlock) / plan.stage_rows) continue;
      out.step = 0;
      out.first += (plan.groups - 1) * kRowBlock;
    }
    return out;
  }
  __device__ int parity() const { return static_cast<int>(number & 1); }
};

// The terms of dgamma and dbeta that a thread adds up down some columns of a row block.
template <int kCols>
struct ColumnChains {
  float dgamma[kCols], dbeta[kCols];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kCols; ++i) dgamma[i] = dbeta[i] = 0.0f;
  }
  __device__ void put(float* to_gamma, float* to_beta) const {
#pragma unroll
    for (int i = 0; i < kCols; i += 4) {
      using Four = cuda::Several<float, 4>;
      *reinterpret_cast<Four*>(to_gamma + i) = {dgamma[i], dgamma[i + 1], dgamma[i + 2],
                                                dgamma[i + 3]};
      *reinterpret_cast<Four*>(to_beta + i) = {dbeta[i], dbeta[i + 1], dbeta[i + 2], dbeta[i + 3]};
    }
  }
  // `first`: of the totals.
  __device__ void add_to(double* gamma, double* beta, bool first) const {
#pragma unroll
    for (int i = 0; i < kCols; ++i) {
      const auto new_gamma = static_cast<double>(dgamma[i]);
      const auto new_beta = static_cast<double>(dbeta[i]);
      gamma[i] = first ? new_gamma : gamma[i] + new_gamma;
      beta[i] = first ? new_beta : beta[i] + new_beta;
    }
  }
};

// A block of threads and its shared memory.
class StagedRows {
 public:
  __device__ StagedRows(const Task& task, const StagedPlan& plan, int element_bytes)
      : task_(task),
        plan_(plan),
        cols_(static_cast<int>(task.cols)),
        layout_(plan, cols_, element_bytes),
        memory_(cuda::shared_memory()) {}

  // gamma as FP32, which both visits read; the first barrier is behind it.
  __device__ void load_gamma() {
    for (int col = cuda::thread_index(); col < cols_; col += cuda::thread_count()) {
      gamma()[col] = task_.gamma_at(col);
    }
  }

 protected:
  // The row that stands in place `place` in `stage`; -1: none.
  __device__ int64_t row_at(const Stage& stage, int place) const {
    const int group = place / plan_.stage_rows;
    const int64_t row =
        stage.first + group * static_cast<int>(kRowBlock - plan_.stage_rows) + place;
    return row < end_ ? row : -1;
  }
  template <class T>
  __device__ T* slot_at(const Stage& stage, int place) const {
    const int slot = plan_.slots == 1 ? 0 : stage.parity();
    return reinterpret_cast<T*>(memory_) + (slot * plan_.rows() + place) * 2 * cols_;
  }
  __device__ float* gamma() const { return reinterpret_cast<float*>(memory_ + layout_.gamma); }
  __device__ double* totals() const { return reinterpret_cast<double*>(memory_ + layout_.totals); }
  __device__ float* exchange() const {
    return reinterpret_cast<float*>(memory_ + layout_.exchange);
  }
  __device__ float* lane_sums(int place) const {
    return reinterpret_cast<float*>(memory_ + layout_.lane_sums) +
           place * static_cast<int>(chunks_of(cols_)) * kChunkSums;
  }
  __device__ StagedRow& row_of(int place) const {
    return reinterpret_cast<StagedRow*>(memory_ + layout_.rows)[place];
  }
  // mean, rstd
  __device__ float* statistics_of(const Stage& stage, int place) const {
    return reinterpret_cast<float*>(memory_ + layout_.statistics) +
           (stage.parity() * plan_.rows() + place) * 2;
  }
  __device__ float* maxima() const { return reinterpret_cast<float*>(memory_ + layout_.maxima); }
  // One mark for each of two stages that follow each other.
  __device__ int* suspects() const {
    return reinterpret_cast<int*>(maxima() + SharedLayout::kMaxima - 2);
  }

  // mean and rstd of the row of this thread, which come while the stage before is worked at.
  __device__ void read_statistics(const Stage& stage, float (&statistics)[2]) const {
    const int place = cuda::thread_index();
    const int64_t row = place < plan_.rows() ? row_at(stage, place) : -1;
    if (row < 0) return;
    statistics[0] = task_.mean.at(row);
    statistics[1] = task_.rstd.at(row);
  }
  __device__ void put_statistics(const Stage& stage, const float (&statistics)[2]) const {
    const int place = cuda::thread_index();
    if (place >= plan_.rows()) return;
    statistics_of(stage, place)[0] = statistics[0];
    statistics_of(stage, place)[1] = statistics[1];
  }

  // What the second visit asks about the rows, but for their means.
  template <class T>
  __device__ void describe_rows(const Stage& stage) const {
    const int place = cuda::thread_index();
    if (place >= plan_.rows()) return;
    StagedRow& row = row_of(place);
    const int64_t number = row_at(stage, place);
    const float* const statistics = statistics_of(stage, place);
    row.flags = number < 0 ? 0 : kPresent;
    if (number < 0) return;
    if (task_.want_dgamma && is_near_zero<T>(statistics[0], statistics[1])) row.flags |= kNearZero;
    if (task_.dx != nullptr) row.dx = task_.dx_rows(number);
    const int64_t next = row_at(stage.behind(plan_, plan_.slots), place);
    row.dy_next = next < 0 ? -1 : task_.dy_rows(next);
    row.x_next = next < 0 ? -1 : task_.x_rows(next);
    if (next >= 0) row.flags |= kHasNext;
  }

  // All threads look at the rows whose means are tiny, or no numbers.
  template <class T>
  __device__ void look_closer(const Stage& stage) const {
    for (int place = 0; place < plan_.rows(); ++place) {
      StagedRow& row = row_of(place);
      const float mean = statistics_of(stage, place)[0];
      const float rstd = statistics_of(stage, place)[1];
      if (row_at(stage, place) < 0 || !is_suspect(row.mean_g, row.mean_gx, rstd)) continue;
      const T* const dy_row = slot_at<T>(stage, place);
      const T* const x_row = dy_row + cols_;
      Largest largest;
      for (int col = cuda::thread_index(); col < cols_; col += cuda::thread_count()) {
        largest.look(cuda::widen(dy_row[col]), cuda::widen(x_row[col]), gamma()[col], mean, rstd);
      }
      largest.join(cuda::kWarpLanes);
      Largest* const of_warps = reinterpret_cast<Largest*>(maxima());
      if (cuda::lane_index() == 0) of_warps[cuda::warp_index()] = largest;
      __syncthreads();
      for (int warp = 0; warp < cuda::warp_count(); ++warp) largest.take(of_warps[warp]);
      if (cuda::thread_index() == 0 && largest.decides(row.mean_g, row.mean_gx, rstd)) {
        const Sums exact =
            exact_means(cols_, mean, rstd, [&](int64_t col, float& dy, float& x, float& factor) {
              dy = cuda::widen(dy_row[col]);
              x = cuda::widen(x_row[col]);
              factor = gamma()[col];
            });
        row.flags |= kExact;
        row.exact_g = exact.g;
        row.exact_gx = exact.gx;
      }
      __syncthreads();
    }
  }

  const Task& task_;
  const StagedPlan& plan_;
  const int cols_;
  int64_t begin_ = 0, end_ = 0;  // rows of the unit

 private:
  const SharedLayout layout_;
  std::byte* const memory_;
};

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_STAGED_ROWS_CUH_
