// SPDX-License-Identifier: Apache-2.0
// One run of Embedding on the CPU, as its kernels see it.
#ifndef ACLGRAD_OPS_EMBEDDING_JOB_H_
#define ACLGRAD_OPS_EMBEDDING_JOB_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cpu/rows.h"
#include "ops/embedding/problem.h"

namespace aclgrad::embedding {

inline constexpr int64_t kNoPosition = std::numeric_limits<int64_t>::max();

// Any alignment.
template <class Index>
int64_t load_index(const void* indices, int64_t place) {
  Index value;
  std::memcpy(&value, static_cast<const char*>(indices) + place * int64_t{sizeof(value)},
              sizeof(value));
  return value;
}

struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  int64_t size;       // bytes of an element
  int64_t row_bytes;  // of table and y
  int64_t ahead;      // rows
  bool streaming;     // y does not fit the cache
  int64_t kept;       // every so-manieth task does not stream; 0: none
  bool follows;       // its rows follow each other and are not whole lines
  RowOffsets table_rows, y_rows, places;
  std::atomic<int64_t>& first_bad;  // position, or kNoPosition

  bool streams(int64_t task) const { return streaming && (kept == 0 || task % kept != 0); }

  void note_bad(int64_t position) const {
    int64_t lowest = first_bad.load(std::memory_order_relaxed);
    while (position < lowest &&
           !first_bad.compare_exchange_weak(lowest, position, std::memory_order_relaxed)) {
    }
  }
};

}  // namespace aclgrad::embedding

#endif  // ACLGRAD_OPS_EMBEDDING_JOB_H_
