// SPDX-License-Identifier: Apache-2.0
// Embedding on the CPU: a copy of rows, several at a time on their way from memory. An output that
// does not fit the cache is written past it, but for the ends of rows whose lines are not whole.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <limits>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "ops/embedding/problem.h"
#include "ops/embedding/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/embedding/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"

#ifndef ACLGRAD_OPS_EMBEDDING_CPU_SHARED_
#define ACLGRAD_OPS_EMBEDDING_CPU_SHARED_
namespace aclgrad::embedding {
namespace {

constexpr size_t kCacheLine = 64;

// Bytes from which the part of a row that has whole lines is written past the cache.
constexpr size_t kStreamBytes = 256;

// Bytes of table rows that are on their way from memory while one is copied, and those of each row
// that are asked for: the rest follows by itself.
constexpr int64_t kBytesAhead = 8192;
constexpr int64_t kMostRowsAhead = 16;
constexpr size_t kPrefetchBytes = 4096;

constexpr int64_t kNoPosition = std::numeric_limits<int64_t>::max();

// One run as the kernel sees it.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  int64_t size;       // bytes of an element
  int64_t row_bytes;  // of table and y
  int64_t ahead;      // rows
  bool streaming;     // y does not fit the cache
  RowOffsets table_rows, y_rows, places;
  std::atomic<int64_t>& first_bad;  // position, or kNoPosition

  // Any alignment.
  int64_t index(int64_t position) const {
    const auto* from = static_cast<const char*>(at.indices);
    if (problem.indices.dtype == ACL_INT32) {
      int32_t value;
      std::memcpy(&value, from + places(position) * int64_t{sizeof(value)}, sizeof(value));
      return value;
    }
    int64_t value;
    std::memcpy(&value, from + places(position) * int64_t{sizeof(value)}, sizeof(value));
    return value;
  }
  // Null: the index at this position is bad.
  const char* table_row(int64_t position) const {
    const int64_t row = index(position);
    if (row < 0 || row >= problem.table_rows) return nullptr;
    return static_cast<const char*>(at.table) + table_rows(row) * size;
  }
  char* y_row(int64_t position) const { return static_cast<char*>(at.y) + y_rows(position) * size; }
  void note_bad(int64_t position) const {
    int64_t lowest = first_bad.load(std::memory_order_relaxed);
    while (position < lowest &&
           !first_bad.compare_exchange_weak(lowest, position, std::memory_order_relaxed)) {
    }
  }
};

// Zeros where `from` is null. Rows of one element do without the detour through the library's
// memcpy.
inline void copy_or_clear(char* to, const char* from, size_t bytes) {
  if (from == nullptr) {
    std::memset(to, 0, bytes);
    return;
  }
  switch (bytes) {
    case 1:
      std::memcpy(to, from, 1);
      return;
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 8:
      std::memcpy(to, from, 8);
      return;
    case 16:
      std::memcpy(to, from, 16);
      return;
    default:
      std::memcpy(to, from, bytes);
  }
}

}  // namespace
}  // namespace aclgrad::embedding
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

HWY_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

// Whole lines, past the cache; `from` of any alignment, or null for zeros.
HWY_INLINE void stream_line(char* to, const char* from) {
#if HWY_TARGET == HWY_SCALAR  // has no streaming stores, and its loads want aligned addresses
  copy_or_clear(to, from, kCacheLine);
#else
  auto* line = reinterpret_cast<uint32_t*>(to);
  for (size_t lane = 0; lane < kLanes; lane += kPartLanes) {
    const VecU32 part = from == nullptr
                            ? hn::Zero(TagU32())
                            : hn::LoadU(TagU32(), reinterpret_cast<const uint32_t*>(from) + lane);
    hn::Stream(part, TagU32(), line + lane);
  }
#endif
}

// A row, or zeros where `from` is null; the row `ahead`, if any, is asked for meanwhile.
void stream_row(char* to, const char* from, const char* ahead, size_t bytes) {
  const auto source = [from](size_t at) { return from == nullptr ? nullptr : from + at; };
  const size_t head = (0 - reinterpret_cast<uintptr_t>(to)) % kCacheLine;
  copy_or_clear(to, from, head);
  size_t at = head;
  for (; at + kCacheLine <= bytes; at += kCacheLine) {
    if (ahead != nullptr) prefetch(ahead + at);
    stream_line(to + at, source(at));
  }
  copy_or_clear(to + at, source(at), bytes - at);
}

void copy_row(char* to, const char* from, const char* ahead, size_t bytes) {
  if (ahead != nullptr) {
    const size_t end = std::min(bytes, kPrefetchBytes);
    for (size_t at = 0; at < end; at += kCacheLine) prefetch(ahead + at);
  }
  copy_or_clear(to, from, bytes);
}

// One task: a panel of a block of rows.
void block(const Job& job, int64_t task) {
  const int64_t begin = task / job.plan.panels * job.plan.block_rows;
  const int64_t end = std::min(begin + job.plan.block_rows, job.problem.rows);
  const int64_t first_byte = task % job.plan.panels * kPanelBytes;
  const auto bytes = static_cast<size_t>(std::min(kPanelBytes, job.row_bytes - first_byte));
  const bool stream = job.streaming && bytes >= kStreamBytes;
  for (int64_t position = begin; position < end; ++position) {
    const char* from = job.table_row(position);
    if (from == nullptr) {
      job.note_bad(position);
    } else {
      from += first_byte;
    }
    const char* ahead = position + job.ahead < end ? job.table_row(position + job.ahead) : nullptr;
    if (ahead != nullptr) ahead += first_byte;
    char* to = job.y_row(position) + first_byte;
    if (stream) {
      stream_row(to, from, ahead, bytes);
    } else {
      copy_row(to, from, ahead, bytes);
    }
  }
  if (stream) hwy::FlushStream();
}

void run(const Job& job) {
  parallel_blocks(job.plan.blocks * job.plan.panels, [&](int64_t task) { block(job, task); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::embedding {
namespace {

HWY_EXPORT(run);

}  // namespace

BadIndex run_cpu(const Problem& problem, const Plan& plan, const Addresses& at) {
  const auto size = static_cast<int64_t>(dtype_size(problem.table.dtype));
  const int64_t row_bytes = problem.cols * size;
  std::atomic<int64_t> first_bad{kNoPosition};
  const Job job{problem,
                plan,
                at,
                size,
                row_bytes,
                std::clamp(kBytesAhead / row_bytes, int64_t{1}, kMostRowsAhead),
                outputs_should_stream(problem.rows * row_bytes),
                RowOffsets(problem.table, 1),
                RowOffsets(problem.y, problem.y.rank - 1),
                RowOffsets(problem.indices, problem.indices.rank),
                first_bad};
  HWY_DYNAMIC_DISPATCH(run)(job);
  const int64_t position = first_bad.load();
  if (position == kNoPosition) return {-1, 0};
  return {position, job.index(position)};
}

}  // namespace aclgrad::embedding
#endif  // HWY_ONCE
