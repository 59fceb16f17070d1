// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor.h"

#include <algorithm>
#include <thread>

#include "base/checked.h"
#include "tensor/check.h"

namespace aclgrad {

constinit HandleTable<Tensor> tensors{Kind::kTensor};

namespace {

// Wraps where the sizes do; check::sizes refuses those before a stride is used.
int64_t wrapping_product(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

int64_t storage_elements_of(const TensorArguments& arguments) {
  if (arguments.storage_rank == 0) return kStorageUnknown;
  const int64_t* begin = arguments.storage_dims;
  const int64_t* end = begin + arguments.storage_rank;
  if (std::any_of(begin, end, [](int64_t dim) { return dim < 0; })) return kStorageInvalid;
  // Programs repeat the view's dims for strided views: that says nothing about the storage.
  if (std::equal(begin, end, arguments.dims, arguments.dims + arguments.rank)) {
    return kStorageUnknown;
  }
  int64_t product = 1;
  bool too_large = false;
  for (const int64_t* dim = begin; dim != end; ++dim) {
    if (*dim == 0) return 0;
    too_large = too_large || __builtin_mul_overflow(product, *dim, &product);
  }
  return too_large ? kStorageUnknown : product;
}

}  // namespace

class Tensor::Lock {
 public:
  explicit Lock(const Tensor& tensor) : locked_(tensor.locked_) {
    while (locked_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
  }
  ~Lock() { locked_.store(false, std::memory_order_release); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  std::atomic<bool>& locked_;
};

void Tensor::begin(const TensorArguments& arguments) {
  Long long_form = make_long(arguments);
  assign(arguments, long_form);
}

void Tensor::describe(const TensorArguments& arguments) {
  Long long_form = make_long(arguments);
  const Lock lock(*this);
  const uint32_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  assign(arguments, long_form);
  version_.store(version + 2, std::memory_order_release);
}

Tensor::Long Tensor::make_long(const TensorArguments& arguments) {
  const uint64_t rank = arguments.rank;
  if (rank <= kMaxRank && arguments.storage_rank <= kMaxRank) return nullptr;
  Long values(new int64_t[2 * rank + arguments.storage_rank]);
  std::copy_n(arguments.dims, rank, values.get());
  int64_t* strides = values.get() + rank;
  int64_t step = 1;
  for (uint64_t i = rank; i-- > 0;) {
    strides[i] = arguments.strides != nullptr ? arguments.strides[i] : step;
    step = wrapping_product(step, arguments.dims[i]);
  }
  std::copy_n(arguments.storage_dims, arguments.storage_rank, strides + rank);
  return values;
}

void Tensor::store_facts(const Facts& facts) noexcept {
  store(elements_, facts.elements);
  store(first_, facts.first);
  store(low_, facts.low);
  store(high_, facts.high);
  store(dense_dims_, int32_t{facts.dense_dims});
  store(fit_, facts.fit);
}

void Tensor::assign(const TensorArguments& arguments, Long& long_form) noexcept {
  const uint64_t rank = arguments.rank;
  Operand described;
  described.rank = rank;
  described.dtype = arguments.dtype;
  described.offset = arguments.offset;
  described.storage_elements = storage_elements_of(arguments);
  store(rank_, rank);
  store(storage_rank_, arguments.storage_rank);
  store(dtype_, static_cast<int32_t>(arguments.dtype));
  store(format_, static_cast<int32_t>(arguments.format));
  store(offset_, arguments.offset);
  store(storage_elements_, described.storage_elements);
  int64_t step = 1;
  for (uint64_t i = rank; i-- > 0;) {
    if (i < kMaxRank) {
      described.dims[i] = arguments.dims[i];
      described.strides[i] = arguments.strides != nullptr ? arguments.strides[i] : step;
      store(dims_[i], described.dims[i]);
      store(strides_[i], described.strides[i]);
    }
    step = wrapping_product(step, arguments.dims[i]);
  }
  store_facts(check::facts_of(described));
  for (uint64_t i = 0; i < std::min<uint64_t>(arguments.storage_rank, kMaxRank); ++i) {
    store(storage_dims_[i], arguments.storage_dims[i]);
  }
  store(data_, arguments.data);
  long_form_.swap(long_form);
}

void Tensor::read(Operand& out) const noexcept {
  for (;;) {
    const uint32_t before = version_.load(std::memory_order_acquire);
    if ((before & 1) != 0) {
      std::this_thread::yield();
      continue;
    }
    out.rank = load(rank_);
    out.dtype = static_cast<aclDataType>(load(dtype_));
    out.format = static_cast<aclFormat>(load(format_));
    out.offset = load(offset_);
    out.storage_elements = load(storage_elements_);
    out.data = load(data_);
    out.facts.elements = load(elements_);
    out.facts.first = load(first_);
    out.facts.low = load(low_);
    out.facts.high = load(high_);
    out.facts.dense_dims = load(dense_dims_);
    out.facts.fit = load(fit_);
    for (size_t i = 0; i < std::min<uint64_t>(out.rank, kMaxRank); ++i) {
      out.dims[i] = load(dims_[i]);
      out.strides[i] = load(strides_[i]);
    }
    out.version = before;
    if (version_.load(std::memory_order_relaxed) == before) return;
  }
}

uint64_t Tensor::count_of(List list) const noexcept {
  return load(list == List::kStorageDims ? storage_rank_ : rank_);
}

void Tensor::copy_to(List list, int64_t* out) const noexcept {
  const uint64_t count = count_of(list);
  if (long_form_ != nullptr) {
    const uint64_t rank = load(rank_);
    const uint64_t start = list == List::kDims ? 0 : list == List::kStrides ? rank : 2 * rank;
    std::copy_n(long_form_.get() + start, count, out);
    return;
  }
  const auto& values = list == List::kDims      ? dims_
                       : list == List::kStrides ? strides_
                                                : storage_dims_;
  for (size_t i = 0; i < count; ++i) out[i] = load(values[i]);
}

int64_t* Tensor::copy(List list, uint64_t& count) const {
  for (;;) {
    const uint64_t expected = count_of(list);
    Long values(new int64_t[std::max<uint64_t>(expected, 1)]);
    const Lock lock(*this);
    if (count_of(list) != expected) continue;  // described anew meanwhile
    copy_to(list, values.get());
    count = expected;
    return values.release();
  }
}

}  // namespace aclgrad
