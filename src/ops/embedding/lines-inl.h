// SPDX-License-Identifier: Apache-2.0
// Rows that are written past the cache, line by line.

#if defined(ACLGRAD_OPS_EMBEDDING_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_LINES_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_LINES_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_LINES_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/prefetch.h"
#include "ops/embedding/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Rows of at least a line that follow each other in memory, written past the cache: lines that two
// rows share are put together here. Written as usual, the ends of rows would cost as much as all
// the rest.
template <class Kind>
class LineWriter {
 public:
  // The row `ahead`, if any, is asked for meanwhile: it may begin anywhere in a line.
  HWY_INLINE void row(char* to, const char* from, const char* ahead, size_t bytes) {
    const auto source = [from](size_t at) { return from == nullptr ? nullptr : from + at; };
    char* const line = room_ + kLineBytes;
    size_t at = 0;
    const size_t begun = reinterpret_cast<uintptr_t>(to) % kLineBytes;
    if (ahead != nullptr) prefetch_to_l2(ahead);
    if (begun != 0) {
      at = kLineBytes - begun;
      copy_elements<Kind>(line + begun, from, kLineBytes);
      if (filled_ == 0) {  // before the first row
        std::memcpy(to, line + begun, at);
      } else {
        stream_line<PlainBits>(to - begun, line);
      }
    }
    for (; at + kLineBytes <= bytes; at += kLineBytes) {
      if (ahead != nullptr) prefetch_to_l2(ahead + at);
      stream_line<Kind>(to + at, source(at));
    }
    if (ahead != nullptr) prefetch_to_l2(ahead + bytes - 1);
    filled_ = bytes - at;
    line_at_ = to + at;
    copy_elements<Kind>(room_ + filled_, source(bytes - kLineBytes), kLineBytes);
  }
  void flush() { std::memcpy(line_at_, room_ + kLineBytes, filled_); }

 private:
  // The shared line is the second of three: a row's last bytes are stored with what is before them,
  // a row's first ones with what is behind them, whole lines without a question of how many count.
  alignas(kLineBytes) char room_[3 * kLineBytes];
  char* line_at_ = nullptr;
  size_t filled_ = 0;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
