// SPDX-License-Identifier: Apache-2.0
// A tensor on the device with a view of any strides, and guard bytes: every byte around and between
// the view's elements holds a pattern that must be there afterwards too. Under AddressSanitizer
// those bytes may not even be read.
#ifndef ACLGRAD_TESTS_SUPPORT_TENSOR_H_
#define ACLGRAD_TESTS_SUPPORT_TENSOR_H_

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "aclnn/acl_meta.h"
#include "support/arrangement.h"
#include "support/device.h"
#include "support/element.h"
#include "support/random.h"
#include "support/sanitizer.h"

namespace aclgrad::test {

// All bits set is a NaN in every floating dtype, and not the canonical one.
inline constexpr uint8_t kPoison = 0xFF;

class Tensor {
 public:
  Tensor(const Dims& dims, aclDataType dtype, Arrangement arrangement = Arrangement::kContiguous)
      : Tensor(dims, dtype, strides_of(dims, arrangement),
               arrangement == Arrangement::kOffset ? 3 : 0) {}

  // Any strides, in elements; `lead` unused elements stand before the lowest one, which makes the
  // view's element offset larger. Elements start out poisoned.
  Tensor(Dims dims, aclDataType dtype, Dims strides, int64_t lead = 0)
      : dims_(std::move(dims)), strides_(std::move(strides)), dtype_(dtype) {
    int64_t lowest = 0;
    int64_t highest = 0;
    for (size_t i = 0; i < dims_.size(); ++i) {
      const int64_t reach = (dims_[i] - 1) * strides_[i];
      (reach < 0 ? lowest : highest) += reach;
    }
    if (numel() != 0) {
      offset_ = lead - lowest;
      storage_elements_ = offset_ + highest + 1;
      bytes_ = static_cast<size_t>(storage_elements_) * element_size() + 2 * kGuard;
      memory_ = DeviceMemory(bytes_);
      address_ = static_cast<uint8_t*>(memory_.get()) + kGuard;
    }
    handle_ = make_handle();
    poison();
  }

  // Stride 0 in the chosen dimensions; inputs only.
  static Tensor broadcast(Dims dims, aclDataType dtype, const std::vector<size_t>& repeated) {
    Dims stored = dims;
    for (const size_t dim : repeated) stored[dim] = 1;
    Dims strides = strides_of(stored, Arrangement::kContiguous);
    for (const size_t dim : repeated) strides[dim] = 0;
    return Tensor(std::move(dims), dtype, std::move(strides));
  }

  Tensor(Tensor&& other) noexcept
      : dims_(std::move(other.dims_)),
        strides_(std::move(other.strides_)),
        dtype_(other.dtype_),
        offset_(other.offset_),
        storage_elements_(other.storage_elements_),
        bytes_(std::exchange(other.bytes_, 0)),
        memory_(std::move(other.memory_)),
        address_(std::exchange(other.address_, nullptr)),
        handle_(std::exchange(other.handle_, nullptr)),
        gaps_(std::move(other.gaps_)) {}
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  Tensor& operator=(Tensor&&) = delete;
  ~Tensor() {
    guard_reads(false);
    destroy_handle();
  }

  aclTensor* handle() const { return handle_; }
  // For tests of destroyed tensors.
  void destroy_handle() {
    if (handle_ != nullptr) static_cast<void>(aclDestroyTensor(std::exchange(handle_, nullptr)));
  }
  // Another handle to the same memory, for the caller to destroy.
  aclTensor* make_handle(aclFormat format = ACL_FORMAT_ND) const {
    return aclCreateTensor(dims_.data(), dims_.size(), dtype_, strides_.data(), offset_, format,
                           &storage_elements_, 1, address_);
  }

  // The storage's base, where element offset 0 lies; null for a tensor without elements.
  void* address() const { return address_; }
  const Dims& dims() const { return dims_; }
  const Dims& strides() const { return strides_; }
  aclDataType dtype() const { return dtype_; }
  int64_t offset() const { return offset_; }
  size_t element_size() const { return dtype_size(dtype_); }
  // From the storage's base to the end of the view's highest element.
  size_t storage_bytes() const { return static_cast<size_t>(storage_elements_) * element_size(); }
  int64_t numel() const {
    int64_t product = 1;
    for (const int64_t dim : dims_) product *= std::max<int64_t>(dim, 0);
    return product;  // 0 for negative dims, which tests give to be refused
  }

  // Values in row-major order of the indices. Where indices share an element the last one stands.
  // Floating values are rounded: the reference should compute on values().
  Tensor& fill(const std::vector<double>& values) {
    check_count(values.size());
    change([&](std::vector<uint8_t>& image) {
      for_each_element([&](size_t i, size_t at) { store_element(dtype_, values[i], &image[at]); });
    });
    return *this;
  }
  // The same with the elements' raw bytes, numel() * element_size() of them.
  Tensor& fill_bits(const std::vector<uint8_t>& bytes) {
    const size_t size = element_size();
    check_count(bytes.size() / size);
    change([&](std::vector<uint8_t>& image) {
      for_each_run([&](size_t i, size_t at, size_t count) {
        std::memcpy(&image[at], &bytes[i * size], count * size);
      });
    });
    return *this;
  }
  Tensor& fill_constant(double value) {
    return fill(std::vector<double>(static_cast<size_t>(numel()), value));
  }
  Tensor& fill_normal(uint64_t seed, double mean = 0.0, double deviation = 1.0) {
    return fill(normal_values(numel(), seed, mean, deviation));
  }
  Tensor& fill_uniform(uint64_t seed, double low, double high) {
    return fill(uniform_values(numel(), seed, low, high));
  }
  // Sums of these show the order of the additions, in FP32 and, but for FP16, in FP64.
  template <class SumOf>
  Tensor& fill_cancelling(uint64_t seed, SumOf&& sum_of) {
    const bool narrow = dtype_ == ACL_FLOAT16;
    return fill(cancelling_values(numel(), seed, narrow ? 12 : 20, narrow ? 14 : 70, sum_of));
  }
  Tensor& fill_integers(uint64_t seed, int64_t low, int64_t high) {
    return fill(integer_values(numel(), seed, low, high));
  }

  std::vector<double> values() const {
    std::vector<double> out(static_cast<size_t>(numel()));
    const std::vector<uint8_t> now = image();
    for_each_element([&](size_t i, size_t at) { out[i] = load_element(dtype_, &now[at]); });
    return out;
  }
  // The elements' raw bytes in row-major order of the indices.
  std::vector<uint8_t> bits() const {
    const size_t size = element_size();
    std::vector<uint8_t> out(static_cast<size_t>(numel()) * size);
    const std::vector<uint8_t> now = image();
    for_each_run([&](size_t i, size_t at, size_t count) {
      std::memcpy(&out[i * size], &now[at], count * size);
    });
    return out;
  }

  // Poisons every byte, elements included.
  void poison() {
    if (bytes_ == 0) return;
    write(std::vector<uint8_t>(bytes_, kPoison));
  }
  // Every byte that belongs to no element still is the poison pattern.
  bool untouched_outside() const {
    const std::vector<uint8_t> now = image();
    return std::all_of(gaps().begin(), gaps().end(), [&](const Gap& gap) {
      return is_poison(now.data() + gap.begin, now.data() + gap.end);
    });
  }
  // The whole memory, elements included, still is the poison pattern.
  bool untouched() const {
    const std::vector<uint8_t> now = image();
    return is_poison(now.data(), now.data() + now.size());
  }

 private:
  static constexpr size_t kGuard = 128;  // bytes; a multiple of the 64 that allocations align to

  static void check_count(size_t given, size_t expected) {
    if (given != expected) throw std::invalid_argument("Tensor::fill: wrong number of values");
  }
  void check_count(size_t given) const { check_count(given, static_cast<size_t>(numel())); }

  // Bytes [begin, end) of the memory that belong to no element.
  struct Gap {
    size_t begin, end;
  };

  static bool is_poison(const uint8_t* begin, const uint8_t* end) {
    return std::all_of(begin, end, [](uint8_t byte) { return byte == kPoison; });
  }

  // fn(number of the first element in row-major order, its first byte in the memory, how many
  // follow it in both)
  template <class Fn>
  void for_each_run(Fn&& fn) const {
    const auto count = static_cast<size_t>(numel());
    const bool dense = !dims_.empty() && strides_.back() == 1;
    const size_t run = dense ? static_cast<size_t>(dims_.back()) : 1;
    Dims index(dims_.size() - (dense ? 1 : 0), 0);
    int64_t element = offset_;
    for (size_t i = 0; i < count; i += run) {
      fn(i, kGuard + static_cast<size_t>(element) * element_size(), run);
      for (size_t dim = index.size(); dim-- > 0;) {
        element += strides_[dim];
        if (++index[dim] < dims_[dim]) break;
        element -= dims_[dim] * strides_[dim];
        index[dim] = 0;
      }
    }
  }
  // fn(number of the element, its first byte)
  template <class Fn>
  void for_each_element(Fn&& fn) const {
    const size_t size = element_size();
    for_each_run([&](size_t i, size_t at, size_t count) {
      for (size_t k = 0; k < count; ++k) fn(i + k, at + k * size);
    });
  }

  // Found once: every copy of the memory asks for them under AddressSanitizer.
  const std::vector<Gap>& gaps() const {
    if (!gaps_.empty() || bytes_ == 0) return gaps_;
    std::vector<uint8_t> of_element(bytes_, 0);
    for_each_run([&](size_t, size_t at, size_t count) {
      std::memset(&of_element[at], 1, count * element_size());
    });
    const uint8_t* first = of_element.data();
    for (size_t i = 0; i < bytes_;) {
      const auto find = [&](int value) {
        const void* at = std::memchr(first + i, value, bytes_ - i);
        return at == nullptr ? bytes_
                             : static_cast<size_t>(static_cast<const uint8_t*>(at) - first);
      };
      i = find(0);
      const size_t begin = i;
      if (begin < bytes_) gaps_.push_back({begin, i = find(1)});
    }
    return gaps_;
  }

  std::vector<uint8_t> image() const {
    std::vector<uint8_t> out(bytes_);
    if (bytes_ == 0) return out;
    guard_reads(false);
    require(aclrtMemcpy(out.data(), bytes_, memory_.get(), bytes_, ACL_MEMCPY_DEVICE_TO_HOST),
            "aclrtMemcpy");
    guard_reads(true);
    return out;
  }
  void write(const std::vector<uint8_t>& bytes) {
    guard_reads(false);
    require(aclrtMemcpy(memory_.get(), bytes_, bytes.data(), bytes_, ACL_MEMCPY_HOST_TO_DEVICE),
            "aclrtMemcpy");
    guard_reads(true);
  }
  template <class Fn>
  void change(Fn&& fn) {
    if (bytes_ == 0) return;
    std::vector<uint8_t> now = image();
    fn(now);
    write(now);
  }

  // AddressSanitizer marks whole groups of eight bytes, so single unused elements stay readable.
  void guard_reads(bool on) const {
    if (bytes_ == 0 || !under_address_sanitizer()) return;
    const auto* bytes = static_cast<const uint8_t*>(memory_.get());
    allow_access(bytes, bytes_);
    if (!on) return;
    for (const Gap& gap : gaps()) {
      if (gap.end - gap.begin >= 8) {
        forbid_access(bytes + gap.begin, gap.end - gap.begin);
      }
    }
  }

  Dims dims_;
  Dims strides_;
  aclDataType dtype_;
  int64_t offset_ = 0;
  int64_t storage_elements_ = 0;
  size_t bytes_ = 0;
  DeviceMemory memory_;
  void* address_ = nullptr;
  aclTensor* handle_ = nullptr;
  mutable std::vector<Gap> gaps_;  // none before gaps()
};

// With these strides, or, without any, as the arrangement has them.
inline Tensor make_view(const Dims& dims, aclDataType dtype, const Dims& strides,
                        Arrangement arrangement) {
  return strides.empty() ? Tensor(dims, dtype, arrangement) : Tensor(dims, dtype, strides);
}

// Host arrays with owners.
class IntArray {
 public:
  explicit IntArray(const std::vector<int64_t>& values)
      : handle_(aclCreateIntArray(values.data(), values.size())) {}
  IntArray(const IntArray&) = delete;
  IntArray& operator=(const IntArray&) = delete;
  ~IntArray() { static_cast<void>(aclDestroyIntArray(handle_)); }
  aclIntArray* handle() const { return handle_; }

 private:
  aclIntArray* handle_;
};

class BoolArray {
 public:
  explicit BoolArray(const std::vector<bool>& values) {
    std::vector<uint8_t> bytes(values.begin(), values.end());
    static_assert(sizeof(bool) == 1);
    handle_ = aclCreateBoolArray(reinterpret_cast<const bool*>(bytes.data()), bytes.size());
  }
  BoolArray(const BoolArray&) = delete;
  BoolArray& operator=(const BoolArray&) = delete;
  ~BoolArray() { static_cast<void>(aclDestroyBoolArray(handle_)); }
  aclBoolArray* handle() const { return handle_; }

 private:
  aclBoolArray* handle_;
};

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_TENSOR_H_
