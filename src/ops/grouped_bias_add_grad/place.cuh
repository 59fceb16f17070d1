// SPDX-License-Identifier: Apache-2.0
// Where the groups lie, from ends that the device has: one block of threads, two groups a thread.
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_PLACE_CUH_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_PLACE_CUH_

#include <limits>

#include "ops/grouped_bias_add_grad/task.cuh"

namespace aclgrad::grouped_bias_add_grad {

inline constexpr int kGroupsOfThread = kMostGroups / static_cast<int>(kCudaTuning.place_threads);
static_assert(kGroupsOfThread * static_cast<int>(kCudaTuning.place_threads) == kMostGroups);

__device__ inline int64_t saturating_sum(int64_t a, int64_t b) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  if (b > 0 && a > kMost - b) return kMost;
  if (b < 0 && a < kLeast - b) return kLeast;
  return a + b;
}

__device__ inline BadEnd::Rule judge(const Task& task, int64_t given, int64_t end, int64_t previous,
                                     bool last) {
  if (given < 0) return BadEnd::Rule::kNegative;
  if (end > std::numeric_limits<int32_t>::max()) return BadEnd::Rule::kTooLarge;
  if (end < previous) return BadEnd::Rule::kDecreasing;
  return last && end != task.rows ? BadEnd::Rule::kNotLast : BadEnd::Rule::kNone;
}

__device__ inline int64_t given_end(const Task& task, int64_t group) {
  const int64_t at = group * task.end_stride;
  return task.ends_are_wide ? static_cast<const int64_t*>(task.ends)[at]
                            : static_cast<const int32_t*>(task.ends)[at];
}

// What the threads before this one hold together; all of them call it. `all`: what all hold.
__device__ inline int64_t sum_before(int64_t own, int64_t& all) {
  __shared__ int64_t of_warps[cuda::kWarpLanes];
  int64_t sum = own;
  for (unsigned step = 1; step < cuda::kWarpLanes; step *= 2) {
    const int64_t before = __shfl_up_sync(cuda::kAllLanes, sum, step);
    if (cuda::lane_index() >= static_cast<int>(step)) sum += before;
  }
  if (cuda::lane_index() == cuda::kWarpLanes - 1) of_warps[cuda::warp_index()] = sum;
  __syncthreads();
  int64_t before = 0;
  all = 0;
  for (int warp = 0; warp < cuda::warp_count(); ++warp) {
    if (warp == cuda::warp_index()) before = all;
    all += of_warps[warp];
  }
  __syncthreads();  // the next one's come to the same place
  return before + sum - own;
}

// Turns sizes into ends. Those that no group can have need sums that saturate, one after the other.
__device__ inline void add_sizes(const Task& task, int64_t* ends) {
  __shared__ int odd;
  if (cuda::thread_index() == 0) odd = 0;
  __syncthreads();
  const int64_t first = int64_t{cuda::thread_index()} * kGroupsOfThread;
  int64_t own = 0;
  bool usual = true;
  for (int64_t group = first; group < first + kGroupsOfThread && group < task.groups; ++group) {
    usual = usual && ends[group] >= 0 && ends[group] <= std::numeric_limits<int32_t>::max();
    if (usual) own += ends[group];
  }
  if (!usual) atomicMin(&odd, -1);
  int64_t all = 0;
  int64_t sum = sum_before(own, all);
  if (odd == 0) {
    for (int64_t group = first; group < first + kGroupsOfThread && group < task.groups; ++group) {
      ends[group] = sum += ends[group];
    }
  } else if (cuda::thread_index() == 0) {
    for (int64_t group = 1; group < task.groups; ++group) {
      ends[group] = saturating_sum(ends[group - 1], ends[group]);
    }
  }
  __syncthreads();
}

__device__ inline Span span_of(const Task& task, const int64_t* ends, int64_t group) {
  const int64_t first = clamp_to(group == 0 ? 0 : ends[group - 1], 0, task.rows);
  return {first, clamp_to(ends[group], first, task.rows) - first, 0, kNoSlot};
}

// Room for totals in the order of the groups, as long as it lasts: bad ends may name rows again and
// again. A group of several blocks that gets none is one item.
__device__ inline void place_in_order(const Task& task, const int64_t* ends) {
  int64_t items = 0;
  int64_t slots = 0;
  for (int64_t group = 0; group < task.groups; ++group) {
    Span span = span_of(task, ends, group);
    const int64_t blocks = blocks_of_rows(span.rows, task.block_rows);
    const bool joined = blocks > 1 && slots + blocks <= task.partial_rows;
    span.start = items;
    if (joined) span.slot = slots;
    task.spans[group] = span;
    items += joined ? blocks : 1;
    if (joined) slots += blocks;
  }
  task.spans[task.groups] = {0, 0, items, kNoSlot};
}

// Reads ends into spans[0 .. groups]; start counts items.
static __global__ void __launch_bounds__(kCudaTuning.place_threads) place_groups(Task task) {
  __shared__ int64_t ends[kMostGroups];
  __shared__ int first_bad;
  const int64_t first = int64_t{cuda::thread_index()} * kGroupsOfThread;
  const int64_t end = clamp_to(first + kGroupsOfThread, first, task.groups);
  if (cuda::thread_index() == 0) first_bad = kMostGroups;
  for (int64_t group = first; group < end; ++group) ends[group] = given_end(task, group);
  __syncthreads();
  if (task.ends_are_sizes) add_sizes(task, ends);

  const auto judge_group = [&](int64_t group) {
    const int64_t previous = group == 0 ? 0 : ends[group - 1];
    return judge(task, given_end(task, group), ends[group], previous, group + 1 == task.groups);
  };
  int64_t blocks[kGroupsOfThread];
  int64_t items = 0;
  int64_t slots = 0;
  for (int64_t group = first; group < end; ++group) {
    if (judge_group(group) != BadEnd::Rule::kNone) atomicMin(&first_bad, static_cast<int>(group));
    const int64_t here = blocks_of_rows(span_of(task, ends, group).rows, task.block_rows);
    blocks[group - first] = here;
    items += here;
    slots += here > 1 ? here : 0;
  }
  int64_t all_items = 0;
  int64_t all_slots = 0;
  int64_t item = sum_before(items, all_items);
  int64_t slot = sum_before(slots, all_slots);
  if (first_bad >= first && first_bad < end) {
    const int64_t group = first_bad;
    task.record->numbers[0] = group;
    task.record->numbers[1] = given_end(task, group);
    task.record->numbers[2] = ends[group];
    task.record->numbers[3] = group == 0 ? 0 : ends[group - 1];
    task.record->rule = static_cast<int64_t>(judge_group(group));
  }
  if (all_slots > task.partial_rows) {
    if (cuda::thread_index() == 0) place_in_order(task, ends);
    return;
  }
  for (int64_t group = first; group < end; ++group) {
    Span span = span_of(task, ends, group);
    const int64_t here = blocks[group - first];
    span.start = item;
    if (here > 1) span.slot = slot;
    task.spans[group] = span;
    item += here;
    slot += here > 1 ? here : 0;
  }
  if (cuda::thread_index() == 0) task.spans[task.groups] = {0, 0, all_items, kNoSlot};
}

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_PLACE_CUH_
