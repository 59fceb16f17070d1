// SPDX-License-Identifier: Apache-2.0
// A list of plain values that needs no memory while it is short, for what most calls have one or
// two of.
#ifndef ACLGRAD_BASE_SHORT_LIST_H_
#define ACLGRAD_BASE_SHORT_LIST_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>

namespace aclgrad {

template <class T, size_t kShort>
class ShortList {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  ShortList() = default;
  ShortList(const ShortList&) = delete;
  ShortList& operator=(const ShortList&) = delete;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* begin() const { return values_; }
  const T* end() const { return values_ + size_; }
  const T& operator[](size_t index) const { return values_[index]; }
  T& back() { return values_[size_ - 1]; }

  // The last two throw std::bad_alloc, changing nothing.
  void clear() { size_ = 0; }
  void push_back(const T& value) {
    if (size_ == capacity_) grow(2 * std::max(capacity_, kShort));
    values_[size_++] = value;
  }
  void assign(const T* values, size_t count) {
    if (count > capacity_) grow(count);
    std::copy_n(values, count, values_);
    size_ = count;
  }

 private:
  void grow(size_t capacity) {
    std::unique_ptr<T[]> longer(new T[capacity]);
    std::copy_n(values_, size_, longer.get());
    long_.swap(longer);
    values_ = long_.get();
    capacity_ = capacity;
  }

  size_t size_ = 0;
  size_t capacity_ = kShort;
  T* values_ = short_;
  std::unique_ptr<T[]> long_;
  T short_[kShort];
};

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_SHORT_LIST_H_
