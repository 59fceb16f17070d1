// SPDX-License-Identifier: Apache-2.0
// The object behind an aclTensor handle. Both phases read it without a lock or a pin (a version
// counter tells a torn read); describing it anew and the getters exclude each other with a spin
// lock.
#ifndef ACLGRAD_TENSOR_TENSOR_H_
#define ACLGRAD_TENSOR_TENSOR_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/handle_table.h"
#include "tensor/operand.h"

namespace aclgrad {

// The nine arguments of aclCreateTensor.
struct TensorArguments {
  const int64_t* dims = nullptr;
  uint64_t rank = 0;
  aclDataType dtype = ACL_DT_UNDEFINED;
  const int64_t* strides = nullptr;
  int64_t offset = 0;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  const int64_t* storage_dims = nullptr;
  uint64_t storage_rank = 0;
  void* data = nullptr;
};

class Tensor {
 public:
  enum class List : uint8_t { kDims, kStrides, kStorageDims };

  // It stays in its slot of the table, where it may be read when it has ended.
  static constexpr bool kStays = true;

  // The first two may throw std::bad_alloc; describe() leaves the tensor as it was then.
  void begin(const TensorArguments& arguments);
  void end() noexcept { long_form_.reset(); }
  void describe(const TensorArguments& arguments);

  // Everything at one moment; `name` and `handle` of the operand are left alone.
  void read(Operand& out) const noexcept;

  // False when it was described anew since read() gave `version`; the address may have changed all
  // the same. The address is loaded first: at that moment the description was not a later one.
  bool has_version(uint32_t version, void*& data) const noexcept {
    data = load(data_);
    return load(version_) == version;
  }

  void* data() const noexcept { return data_.load(std::memory_order_acquire); }
  void set_data(void* data) noexcept { data_.store(data, std::memory_order_release); }
  aclDataType dtype() const noexcept { return static_cast<aclDataType>(load(dtype_)); }
  aclFormat format() const noexcept { return static_cast<aclFormat>(load(format_)); }
  int64_t offset() const noexcept { return load(offset_); }

  // A copy made with new int64_t[], never null; the caller owns it. Throws std::bad_alloc.
  int64_t* copy(List list, uint64_t& count) const;

 private:
  using Long = std::unique_ptr<int64_t[]>;
  class Lock;

  // Acquire on every field keeps the second look at the version behind all of them, and release
  // keeps the first change of the version before them; no fence is needed.
  template <class T>
  static T load(const std::atomic<T>& field) noexcept {
    return field.load(std::memory_order_acquire);
  }
  template <class T>
  static void store(std::atomic<T>& field, T value) noexcept {
    field.store(value, std::memory_order_release);
  }

  void store_facts(const Facts& facts) noexcept;
  static Long make_long(const TensorArguments& arguments);
  void assign(const TensorArguments& arguments, Long& long_form) noexcept;
  uint64_t count_of(List list) const noexcept;
  void copy_to(List list, int64_t* out) const noexcept;

  mutable std::atomic<bool> locked_{false};
  std::atomic<uint32_t> version_{0};  // odd while a change is under way
  std::atomic<void*> data_{nullptr};
  std::atomic<uint64_t> rank_{0};
  std::atomic<uint64_t> storage_rank_{0};
  std::atomic<int32_t> dtype_{0};
  std::atomic<int32_t> format_{0};
  std::atomic<int64_t> offset_{0};
  std::atomic<int64_t> storage_elements_{0};
  // What the fields above and the lists below say together.
  std::atomic<int64_t> elements_{0}, first_{0}, low_{0}, high_{0};
  std::atomic<int32_t> dense_dims_{0};
  std::atomic<bool> fit_{false};
  std::array<std::atomic<int64_t>, kMaxRank> dims_{};
  std::array<std::atomic<int64_t>, kMaxRank> strides_{};
  std::array<std::atomic<int64_t>, kMaxRank> storage_dims_{};
  // Dims, strides and storage dims in full when one rank is over eight. Under the lock.
  Long long_form_;
};

extern constinit HandleTable<Tensor> tensors;

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_TENSOR_H_
