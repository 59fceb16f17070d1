// SPDX-License-Identifier: Apache-2.0
// dx in whole lines past the caches.

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_LINES_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_LINES_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_LINES_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/cache.h"
#include "ops/scaled_masked_softmax_backward/visits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// A line of a clean row past the caches; `to` begins a line.
HWY_INLINE void stream_line(const Row<float>& row, size_t at, const Terms& terms, float* to) {
  const F32x16 dx = clean16(row, at, terms);
  for (size_t i = 0; i < kParts; ++i) hn::Stream(dx.part[i], TagF32(), to + i * kPartLanes);
}
template <class T>
HWY_INLINE void stream_line(const Row<T>& row, size_t at, const Terms& terms, T* to) {
  write32<true>(row, at, terms, to);
}

// Writes dx of one row after the other, each of more than 32 elements. Where a line belongs to two
// rows that follow each other it is kept for the second: a line that is on its way to memory should
// not be touched again. flush() is to be called before a row that is written otherwise, and at the
// end. dx may be dy or y: of those nothing is read again but what waits for its line.
template <class T>
class LineWriter {
  static constexpr size_t kLine = kLineBytes / sizeof(T);

 public:
  LineWriter(size_t cols, const Factors& factors) : cols_(cols), factors_(factors) {}

  // `clean`: dx of the row holds no NaN.
  HWY_INLINE void add(const Row<T>& row, float sum, bool clean) {
    const Terms terms = terms_of(factors_, sum);
    size_t at = begin_row(row, sum);
    if (clean) {
      for (; at + kLine <= cols_; at += kLine) {
        prefetch_ahead(row, at);
        stream_line(row, at, terms, row.dx + at);
      }
    } else {
      for (; at + kLine <= cols_; at += kLine) {
        for (size_t i = at; i < at + kLine; i += kLanes) {
          stream16(dx16(row, i, terms), row.dx + i);
        }
      }
    }
    end_row(row, sum);
  }

  // What add() does before the whole lines of a row and after them. The first returns the element
  // with which they begin.
  HWY_INLINE size_t begin_row(const Row<T>& row, float sum) {
    if (waiting_ != 0 && row.dx != last_.dx + cols_) flush();
    if (waiting_ != 0) {
      write_shared(row, sum);
      return kLine - waiting_;
    }
    const size_t at = to_line(row);
    if (at != 0) write_part(row, 0, at, terms_of(factors_, sum));
    return at;
  }
  HWY_INLINE void end_row(const Row<T>& row, float sum) {
    waiting_ = (cols_ - to_line(row)) % kLine;
    last_ = row;
    last_sum_ = sum;
  }

  void flush() {
    if (waiting_ != 0) write_part(last_, cols_ - waiting_, cols_, terms_of(factors_, last_sum_));
    waiting_ = 0;
  }

 private:
  static HWY_INLINE size_t to_line(const Row<T>& row) {
    return (0 - reinterpret_cast<uintptr_t>(row.dx) / sizeof(T)) % kLine;
  }
  // The last `waiting_` elements of the last row and the first ones of this one.
  HWY_INLINE void write_shared(const Row<T>& row, float sum) {
    alignas(kLineBytes) T dy_buffer[2 * kLine];
    alignas(kLineBytes) T y_buffer[2 * kLine];
    alignas(kLineBytes) uint8_t mask_buffer[2 * kLine];
    const auto* dy = joined(last_.dy, row.dy, dy_buffer);
    const auto* y = joined(last_.y, row.y, y_buffer);
    const auto* mask = joined(last_.mask, row.mask, mask_buffer);
    const F32x16 minus_last = set16(-last_sum_);
    const F32x16 minus_this = set16(-sum);
    for (size_t i = 0; i < kLine; i += kLanes) {
      const size_t of_last = waiting_ > i ? HWY_MIN(waiting_ - i, kLanes) : 0;
      const Terms terms{set16(factors_.on_dy), set16(factors_.on_dx),
                        first_from(of_last, minus_last, minus_this)};
      const F32x16 dx = dx16(load16(dy + i), load16(y + i), terms);
      stream16(masked(dx, mask + i), row.dx - waiting_ + i);
    }
  }
  // Where the line's elements of a tensor follow each other: in memory, or in the buffer.
  template <class E>
  HWY_INLINE const E* joined(const E* last, const E* first, E* buffer) const {
    if (first == last + cols_) return first - waiting_;
    std::memcpy(static_cast<void*>(buffer), last + cols_ - kLine, kLine * sizeof(E));
    std::memcpy(static_cast<void*>(buffer + kLine), first, kLine * sizeof(E));
    return buffer + kLine - waiting_;
  }

  // Elements [begin, end), less than a line, at the row's begin or end.
  void write_part(const Row<T>& row, size_t begin, size_t end, const Terms& terms) {
    alignas(kLineBytes) T buffer[kLine];
    const size_t from = begin == 0 ? 0 : cols_ - kLine;
    for (size_t i = 0; i < kLine; i += kLanes) {
      store16(dx16(row, from + i, terms), buffer + i);
    }
    std::memcpy(static_cast<void*>(row.dx + begin), buffer + (begin - from),
                (end - begin) * sizeof(T));
  }

  size_t cols_;
  Factors factors_;
  size_t waiting_ = 0;  // elements at the end of the last row that wait for their line
  Row<T> last_{};
  float last_sum_ = 0.0f;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
