// SPDX-License-Identifier: Apache-2.0
// A small buffer in front of an output that is written past the caches.

#if defined(ACLGRAD_KERNELS_CPU_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_STAGE_INL_H_
#undef ACLGRAD_KERNELS_CPU_STAGE_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_STAGE_INL_H_
#endif

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

// Shares L1 with the rows of the inputs.
inline constexpr size_t kStageBytes = 8192;

template <class T>
HWY_INLINE bool begins_line(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % kLineBytes == 0;
}

// Elements that follow each other in memory, gathered until whole lines can be written. What is
// still here at the end is written by flush(), which is to be called before it is destroyed.
template <class T>
class Stage {
  static constexpr size_t kElements = kStageBytes / sizeof(T);
  static constexpr size_t kLineElements = kLineBytes / sizeof(T);

 public:
  // What room() can always give: all but the part of a line that drain() keeps.
  static constexpr size_t kMost = kElements - kLineElements;

  explicit Stage(bool streaming) : streaming_(streaming) {}

  // Where the `count` elements for [at, at + count) belong, at most kMost. The thirty-two behind
  // them may be overwritten. They count as present at once.
  HWY_INLINE T* room(T* at, size_t count) {
    if (HWY_UNLIKELY(at != next_ + filled_)) {
      flush();
      next_ = at;
    }
    if (HWY_UNLIKELY(filled_ + count > kElements)) drain();
    T* out = values_ + filled_;
    filled_ += count;
    return out;
  }

  void flush() {
    drain();
    copy(values_, next_, filled_);
    next_ += filled_;
    filled_ = 0;
  }

 private:
  static void copy(const T* from, T* to, size_t count) {
    if (count != 0) std::memcpy(static_cast<void*>(to), from, count * sizeof(T));
  }

  // Writes whole lines and keeps what is left.
  void drain() {
    size_t at = 0;
    if (!streaming_) {
      at = filled_;
      copy(values_, next_, at);
    } else if (filled_ >= kLineElements) {
      const size_t over = reinterpret_cast<uintptr_t>(next_) / sizeof(T) % kLineElements;
      if (over != 0) at = kLineElements - over;
      copy(values_, next_, at);
      for (; at + kLineElements <= filled_; at += kLineElements) {
        const auto* from = reinterpret_cast<const float*>(values_ + at);
        auto* to = reinterpret_cast<float*>(next_ + at);
        for (size_t i = 0; i < kLanes; i += kPartLanes) {
          hn::Stream(hn::LoadU(TagF32(), from + i), TagF32(), to + i);
        }
      }
      std::memmove(static_cast<void*>(values_), values_ + at, (filled_ - at) * sizeof(T));
    }
    next_ += at;
    filled_ -= at;
  }

  alignas(kLineBytes) T values_[kElements + 2 * kLanes];
  T* next_ = nullptr;
  size_t filled_ = 0;
  bool streaming_;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
