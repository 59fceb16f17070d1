// SPDX-License-Identifier: Apache-2.0
// Embedding on the CPU: a copy of rows with canonical NaNs, several at a time on their way from
// memory. An output that does not fit the cache is written past it; where rows are not whole lines,
// short ones from registers, or through a stage where an instruction set cannot shuffle them, and
// long ones line by line.
#include <algorithm>
#include <atomic>
#include <cstddef>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/rows.h"
#include "ops/embedding/elements.h"
#include "ops/embedding/job.h"
#include "ops/embedding/problem.h"
#include "ops/embedding/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/embedding/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/stage-inl.h"
#include "ops/embedding/carry-inl.h"
#include "ops/embedding/elements-inl.h"
#include "ops/embedding/lines-inl.h"

#ifndef ACLGRAD_OPS_EMBEDDING_CPU_SHARED_
#define ACLGRAD_OPS_EMBEDDING_CPU_SHARED_
namespace aclgrad::embedding {
namespace {

// Bytes from which the part of a row that has whole lines is written past the cache, although its
// ends are not.
constexpr size_t kStreamBytes = 256;

// Of the stage of the shortest rows.
constexpr size_t kStageBytes = size_t{16} << 10;

// Bytes of table rows that are on their way from memory while one is copied, and those of each row
// that are asked for: the rest follows by itself.
constexpr int64_t kBytesAhead = 8192;
constexpr int64_t kMostRowsAhead = 32;  // a power of two
constexpr size_t kPrefetchBytes = 4096;

// Rows of so many bytes that share lines are called from L2 to L1 when half of those ahead of them
// are done: a load that is part of two lines waits for each of them (the same core: f32
// 378788x378788x33 5.0 ms without, 4.2 so; rows of whole lines gain nothing).
constexpr size_t kLeastNear = 64, kMostNear = 2048;

// Of rows of whole lines that stream, every so-manieth task is written through the caches all the
// same; 0: none. Where the table stays in the caches memory has nothing to do but to write, and it
// has less to write at once when the last-level cache takes what it can hold, if that is a part
// worth having (two cores of Zen 3 that share one way to memory, by turns, bf16 65536x2x768: 4.38
// -> 4.10 ms, with 24 MiB in place of 16 as long, every fourth row in place of tasks 4.14; 200 MB
// in FP32 1.01 times as fast, hence the limit. With a way each 2.30 -> 2.33). Tables that come from
// memory need the room themselves (bf16 16384x50304x768: 0.75 -> 1.03). Only AMD's were measured.
int64_t kept_every(int64_t table_bytes, int64_t y_bytes) {
  constexpr int64_t kLeastPart = 8;
  const int64_t kept = kept_output_bytes();
  if (kPrefetchesWait || table_bytes > kept / 4 || y_bytes > kLeastPart * kept) return 0;
  return ceil_div(y_bytes, kept);
}

}  // namespace
}  // namespace aclgrad::embedding
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Bytes from which rows that follow each other go line by line (LineWriter). Shorter ones go from
// registers (CarryWriter): what two rows put into one line is stored twice before it is loaded
// once, which a core does not do in a hurry, least of all behind streaming stores (two Zen 4 cores:
// bf16 1100004x11107x45 5.6 ms through a stage, 3.8 from registers). Smaller registers help less
// (AVX2 on two cores of Zen 3, rows of 196 to 252 bytes in FP32: 0.7 to 0.9 of the time line by
// line, 132 bytes 1.3).
constexpr size_t kLongRow = HWY_TARGET == HWY_AVX2 ? 176 : 256;

// A row, or zeros where `from` is null; the row `ahead`, if any, is asked for meanwhile. Elements
// lie at multiples of their size, so no line cuts one.
template <class Kind>
void stream_row(char* to, const char* from, const char* ahead, size_t bytes) {
  const auto source = [from](size_t at) { return from == nullptr ? nullptr : from + at; };
  const size_t head = (0 - reinterpret_cast<uintptr_t>(to)) % kLineBytes;
  copy_elements<Kind>(to, from, head);
  size_t at = head;
  for (; at + kLineBytes <= bytes; at += kLineBytes) {
    if (ahead != nullptr) prefetch_to_l2(ahead + at);
    stream_line<Kind>(to + at, source(at));
  }
  copy_elements<Kind>(to + at, source(at), bytes - at);
}

template <class Kind>
HWY_INLINE void copy_row(char* to, const char* from, const char* ahead, size_t bytes) {
  if (ahead != nullptr) {
    const size_t end = std::min(bytes, kPrefetchBytes);
    for (size_t at = 0; at < end; at += kLineBytes) prefetch_to_l2(ahead + at);
    prefetch_to_l2(ahead + end - 1);  // the row may begin anywhere in a line
  }
  copy_elements<Kind>(to, from, bytes);
}

// Calls a row, if any, that may begin with any element in a line, to L1.
template <class Kind>
HWY_INLINE void call_near(const char* row, size_t bytes) {
  if (row == nullptr) return;
  size_t at = 0;
  for (; bytes - at > kLineBytes + sizeof(typename Kind::Bits); at += kLineBytes) {
    prefetch_to_l1(row + at);
  }
  prefetch_to_l1(row + at);
  prefetch_to_l1(row + bytes - 1);
}

// Finds the table rows of positions. Its numbers are its own, so that the copies, which may write
// anything as far as the compiler knows, do not make it fetch them again.
template <class Index>
class Lookup {
 public:
  Lookup(const Job& job, int64_t first_byte)
      : job_(job),
        indices_(job.at.indices),
        table_(static_cast<const char*>(job.at.table) + first_byte),
        table_rows_(job.problem.table_rows),
        row_step_(job.table_rows.stride() * job.size),
        index_step_(job.places.stride()),
        uniform_(job.places.uniform()) {}

  // Null: the index at this position is bad.
  const char* find(int64_t position) const {
    const int64_t row = index(position);
    if (HWY_LIKELY(row >= 0 && row < table_rows_)) return table_ + row * row_step_;
    job_.note_bad(position);
    return nullptr;
  }
  // Asks for the row of a position, whatever its index is. `kLevel`: to L2, or with 3 to L1.
  template <int kLevel>
  HWY_INLINE void ask(int64_t position, size_t bytes) const {
    const auto row = static_cast<uintptr_t>(index(position));
    const auto at = reinterpret_cast<uintptr_t>(table_) + row * static_cast<uintptr_t>(row_step_);
    for (size_t i = 0; i < bytes - 1; i += kLineBytes) {
      __builtin_prefetch(reinterpret_cast<const void*>(at + i), 0, kLevel);
    }
    __builtin_prefetch(reinterpret_cast<const void*>(at + bytes - 1), 0, kLevel);
  }

 private:
  HWY_INLINE int64_t index(int64_t position) const {
    const int64_t place = uniform_ ? position * index_step_ : job_.places(position);
    return load_index<Index>(indices_, place);
  }

  const Job& job_;
  const void* indices_;
  const char* table_;
  int64_t table_rows_, row_step_, index_step_;
  bool uniform_;
};

// A panel of a block of rows.
struct Part {
  Part(const Job& job, int64_t task)
      : begin(task / job.plan.panels * job.plan.block_rows),
        end(std::min(begin + job.plan.block_rows, job.problem.rows)),
        first_byte(task % job.plan.panels * kPanelBytes),
        bytes(static_cast<size_t>(std::min(kPanelBytes, job.row_bytes - first_byte))),
        y(static_cast<char*>(job.at.y) + first_byte) {}

  int64_t begin, end;  // rows
  int64_t first_byte;
  size_t bytes;
  char* y;  // of row 0
};

// Calls copy(to, from, ahead) for every row.
template <class Kind, class Index, class Copy>
HWY_INLINE void each_row(const Job& job, const Part& part, Copy&& copy) {
  const int64_t begin = part.begin, end = part.end;
  const int64_t distance = job.ahead;
  const size_t bytes = part.bytes;
  const bool share_lines = (reinterpret_cast<uintptr_t>(job.at.table) |
                            static_cast<uintptr_t>(job.table_rows.stride() * job.size)) %
                               kLineBytes !=
                           0;
  const bool call = share_lines && bytes >= kLeastNear && bytes <= kMostNear;
  const bool uniform = job.y_rows.uniform();
  const int64_t y_step = job.y_rows.stride() * job.size;
  char* const y = part.y;
  const Lookup<Index> lookup(job, part.first_byte);
  const char* found[kMostRowsAhead] = {};
  const auto slot = [](int64_t position) {
    return static_cast<size_t>(position) % static_cast<size_t>(kMostRowsAhead);
  };
  for (int64_t position = begin; position < std::min(begin + distance, end); ++position) {
    found[slot(position)] = lookup.find(position);
  }
  for (int64_t position = begin; position < end; ++position) {
    const char* from = found[slot(position)];
    const char* ahead = position + distance < end ? lookup.find(position + distance) : nullptr;
    found[slot(position + distance)] = ahead;
    if (call) call_near<Kind>(found[slot(position + distance / 2)], bytes);
    copy(y + (uniform ? position * y_step : job.y_rows(position) * job.size), from, ahead);
  }
}

#if HWY_TARGET <= HWY_AVX2
// Whether rows that follow each other and are no whole lines went from registers.
template <class Kind, class Index>
bool carry_rows(const Job& job, const Part& part) {
  using Writer = CarryWriter<Kind>;
  constexpr size_t kUnit = std::max(Writer::kUnit, sizeof(typename Kind::Bits));
  const size_t bytes = part.bytes;
  if (bytes >= kLongRow) return false;
  if ((reinterpret_cast<uintptr_t>(part.y) | bytes) % kUnit != 0) return false;
  const Lookup<Index> lookup(job, part.first_byte);
  Writer carry(part.y + part.begin * job.row_bytes, bytes, job.streaming);
  const auto each = [&](auto&& write) HWY_ATTR {
    int64_t position = part.begin;
    for (const int64_t end = part.end - job.ahead; position < end; ++position) {
      if (bytes >= kLeastNear) {
        lookup.template ask<2>(position + job.ahead, bytes);
        lookup.template ask<3>(position + job.ahead / 2, bytes);
      } else {
        lookup.template ask<3>(position + job.ahead, bytes);
      }
      write(lookup.find(position));
    }
    for (; position < part.end; ++position) write(lookup.find(position));
  };
  if (bytes < Writer::kBytes) {
    each([&](const char* from) HWY_ATTR { carry.short_row(from); });
  } else {
    each([&](const char* from) HWY_ATTR { carry.long_row(from); });
  }
  carry.flush();
  return true;
}
#endif

// One task.
template <class Kind, class Index>
void block(const Job& job, int64_t task) {
  const Part part(job, task);
  const size_t bytes = part.bytes;
  constexpr size_t kUnit = Kind::kFloating ? sizeof(typename Kind::Bits) : 1;
  const bool stream = job.streams(task);
#if HWY_TARGET <= HWY_AVX2
  if constexpr (kCarries<Kind>) {
    if (job.follows && carry_rows<Kind, Index>(job, part)) {
      if (stream) hwy::FlushStream();
      return;
    }
  }
#endif
  if (stream && job.follows && bytes < kLongRow) {
    Stage<char, kStageBytes> stage(true);
    each_row<Kind, Index>(job, part, [&](char* to, const char* from, const char* ahead) HWY_ATTR {
      copy_row<Kind>(stage.room(to, bytes), from, ahead, bytes);
    });
    stage.flush();
  } else if (stream && job.follows && reinterpret_cast<uintptr_t>(part.y) % kUnit == 0) {
    LineWriter<Kind> lines;
    each_row<Kind, Index>(job, part, [&](char* to, const char* from, const char* ahead) HWY_ATTR {
      lines.row(to, from, ahead, bytes);
    });
    lines.flush();
  } else {
    each_row<Kind, Index>(job, part, [&](char* to, const char* from, const char* ahead) HWY_ATTR {
      const auto place = reinterpret_cast<uintptr_t>(to);
      const bool whole_lines = (place | bytes) % kLineBytes == 0;
      if (stream && place % kUnit == 0 && (bytes >= kStreamBytes || whole_lines)) {
        stream_row<Kind>(to, from, ahead, bytes);
      } else {
        copy_row<Kind>(to, from, ahead, bytes);
      }
    });
  }
  if (stream) hwy::FlushStream();
}

void run(const Job& job) {
  const int64_t tasks = job.plan.blocks * job.plan.panels;
  visit_kind(job.problem.table.dtype, [&](auto kind) {
    using Kind = decltype(kind);
    if (job.problem.indices.dtype == ACL_INT32) {
      parallel_blocks(tasks, [&](int64_t task) { block<Kind, int32_t>(job, task); });
    } else {
      parallel_blocks(tasks, [&](int64_t task) { block<Kind, int64_t>(job, task); });
    }
  });
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
  const int64_t y_bytes = problem.rows * row_bytes;
  const RowOffsets y_rows(problem.y, problem.y.rank - 1);
  const bool whole_lines =
      (reinterpret_cast<uintptr_t>(at.y) | static_cast<uintptr_t>(row_bytes)) % kLineBytes == 0;
  const bool follow = y_rows.uniform() && y_rows.stride() == problem.cols;
  const Job job{problem,
                plan,
                at,
                size,
                row_bytes,
                std::clamp(kBytesAhead / row_bytes, int64_t{1}, kMostRowsAhead),
                outputs_should_stream(y_bytes),
                whole_lines ? kept_every(problem.table_rows * row_bytes, y_bytes) : 0,
                follow && !whole_lines && plan.panels == 1,
                RowOffsets(problem.table, 1),
                y_rows,
                RowOffsets(problem.indices, problem.indices.rank),
                first_bad};
  HWY_DYNAMIC_DISPATCH(run)(job);
  const int64_t position = first_bad.load();
  if (position == kNoPosition) return {-1, 0};
  const int64_t place = job.places(position);
  return {position, problem.indices.dtype == ACL_INT32 ? load_index<int32_t>(at.indices, place)
                                                       : load_index<int64_t>(at.indices, place)};
}

}  // namespace aclgrad::embedding
#endif  // HWY_ONCE
