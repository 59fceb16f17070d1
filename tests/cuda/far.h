// SPDX-License-Identifier: Apache-2.0
// Calls of an operator on an emulated GPU of so many addresses that only the pages of a few
// elements exist: each of its tensors in turn lies 2^32 elements apart, and the numbers must be
// those of neighbours.
#ifndef ACLGRAD_TESTS_CUDA_FAR_H_
#define ACLGRAD_TESTS_CUDA_FAR_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aclnn/acl_meta.h"
#include "base/dtype.h"
#include "runtime/services.h"
#include "support/device.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {

// An offset that lost its upper half, signed or not, is 16 or a few times that: an element of a
// wrong row. A multiple of sixteen, so accesses of several elements stay possible.
inline constexpr int64_t kFar = (int64_t{1} << 32) + 16;

// Elements with any distances between them, none of them negative, the first one `begin` elements
// behind the storage's base.
class FarTensor {
 public:
  FarTensor(const Dims& dims, aclDataType dtype, const Dims& strides, int64_t begin)
      : size_(dtype_size(dtype)) {
    places_ = {static_cast<size_t>(begin) * size_};
    for (size_t i = 0; i < dims.size(); ++i) {
      std::vector<size_t> inner;
      for (const size_t place : places_) {
        for (int64_t k = 0; k < dims[i]; ++k) {
          inner.push_back(place + static_cast<size_t>(k * strides[i]) * size_);
        }
      }
      places_ = std::move(inner);
    }
    memory_ = DeviceMemory(whole_gibs(places_.back() + size_));
    handle_ = aclCreateTensor(dims.data(), dims.size(), dtype, strides.data(), begin, ACL_FORMAT_ND,
                              nullptr, 0, memory_.get());
  }
  FarTensor(const FarTensor&) = delete;
  FarTensor& operator=(const FarTensor&) = delete;
  ~FarTensor() { EXPECT_EQ(aclDestroyTensor(handle_), 0); }

  aclTensor* handle() const { return handle_; }
  // Of the elements in row-major order of the indices.
  void fill_bits(const std::vector<uint8_t>& bits) const {
    for_each_run([&](size_t begin, uint8_t* at, size_t bytes) {
      require(aclrtMemcpy(at, bytes, &bits[begin], bytes, ACL_MEMCPY_HOST_TO_DEVICE),
              "aclrtMemcpy");
    });
  }
  std::vector<uint8_t> bits() const {
    std::vector<uint8_t> out(places_.size() * size_);
    for_each_run([&](size_t begin, const uint8_t* at, size_t bytes) {
      require(aclrtMemcpy(&out[begin], bytes, at, bytes, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
    });
    return out;
  }

 private:
  // The emulation gives freed addresses to those who want just as many of them.
  static size_t whole_gibs(size_t bytes) {
    constexpr size_t kGib = size_t{1} << 30;
    return bytes < kGib ? bytes : (bytes + kGib - 1) / kGib * kGib;
  }
  // fn(first byte among those of all elements, its address, bytes that are neighbours there too)
  template <class Fn>
  void for_each_run(Fn&& fn) const {
    for (size_t begin = 0; begin < places_.size();) {
      size_t end = begin + 1;
      while (end < places_.size() && places_[end] == places_[end - 1] + size_) ++end;
      fn(begin * size_, static_cast<uint8_t*>(memory_.get()) + places_[begin],
         (end - begin) * size_);
      begin = end;
    }
  }

  size_t size_;
  std::vector<size_t> places_;  // bytes
  DeviceMemory memory_;
  aclTensor* handle_ = nullptr;
};

// Strides of neighbours, but for `dim`, in which they are `step`.
inline Dims far_along(Dims dims, size_t dim, int64_t step = kFar) {
  dims[dim] = 1;
  Dims strides = strides_of(dims, Arrangement::kContiguous);
  strides[dim] = step;
  return strides;
}

// A parameter of an operator, and how it lies when it is the one that is far apart.
struct FarOperand {
  std::string name;
  Dims dims;
  aclDataType dtype;
  Dims strides;
  std::vector<double> values;  // of an input
  Dims near = {};              // strides when another one is far apart; none: contiguous
  int64_t begin = 0;           // elements before the first one
};

inline FarOperand far_input(std::string name, Dims dims, aclDataType dtype, Dims strides,
                            std::vector<double> values) {
  return {std::move(name), std::move(dims), dtype, std::move(strides), std::move(values)};
}
// Of numbers from 0 to 1.
inline FarOperand far_input(std::string name, Dims dims, aclDataType dtype, Dims strides,
                            uint64_t seed) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return far_input(std::move(name), std::move(dims), dtype, std::move(strides),
                   uniform_values(count, seed, 0.0, 1.0));
}
inline FarOperand far_output(std::string name, Dims dims, aclDataType dtype, Dims strides) {
  return {std::move(name), std::move(dims), dtype, std::move(strides), {}};
}

// Calls check(dims, strides) for the softmaxes' tensors, rows of less than a warp, of a warp and of
// several, far apart along each dimension but the last; an odd distance allows no pairs.
template <class Check>
void each_far_attention(Check&& check) {
  for (const int64_t cols : {8, 40, 2050}) {
    for (const size_t dim : {0u, 1u, 2u}) {
      SCOPED_TRACE(std::to_string(cols) + " columns, dimension " + std::to_string(dim));
      const Dims dims = {2, 2, 2, cols};
      check(dims, far_along(dims, dim, kFar + static_cast<int64_t>(dim % 2)));
    }
  }
}

class Far : public testing::Test {
 protected:
  using Handles = std::vector<aclTensor*>;
  // An operator's call with the tensors of the operands.
  using Call = std::function<Outcome(const Handles&)>;

  void SetUp() override {
    use_device();
    if (!aclgrad_has_device_queues()) GTEST_SKIP() << "the CPU was chosen";
  }

  void expect_same(const std::vector<FarOperand>& operands, const Call& call) {
    const auto near = results(operands, operands.size(), call);
    ASSERT_FALSE(near.empty()) << "no operand is an output";
    for (size_t i = 0; i < operands.size(); ++i) {
      SCOPED_TRACE(operands[i].name + " is far apart");
      EXPECT_EQ(results(operands, i, call), near);
    }
  }

 private:
  // Of all outputs, while operand `far` is far apart.
  std::vector<std::vector<uint8_t>> results(const std::vector<FarOperand>& operands, size_t far,
                                            const Call& call) {
    std::vector<std::unique_ptr<FarTensor>> tensors;
    Handles handles;
    for (size_t i = 0; i < operands.size(); ++i) {
      const FarOperand& each = operands[i];
      const Tensor dense = dense_of(each);
      const Dims& near = each.near.empty() ? dense.strides() : each.near;
      tensors.push_back(std::make_unique<FarTensor>(
          each.dims, each.dtype, i == far ? each.strides : near, i == far ? each.begin : 0));
      handles.push_back(tensors.back()->handle());
      tensors.back()->fill_bits(dense.bits());  // an output's are poison: zeros are written too
    }
    const Outcome outcome = call(handles);
    EXPECT_TRUE(outcome.ok()) << outcome;
    std::vector<std::vector<uint8_t>> out;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].values.empty()) out.push_back(tensors[i]->bits());
    }
    return out;
  }
  static Tensor dense_of(const FarOperand& operand) {
    Tensor out(operand.dims, operand.dtype);
    if (!operand.values.empty()) out.fill(operand.values);
    return out;
  }
};

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_CUDA_FAR_H_
