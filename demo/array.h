// SPDX-License-Identifier: Apache-2.0
// A contiguous tensor of any dtype with its values as doubles, and the run of an operator on such.
#ifndef ACLGRAD_DEMO_ARRAY_H_
#define ACLGRAD_DEMO_ARRAY_H_

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "support/element.h"
#include "support/tolerance.h"

namespace aclgrad::demo {

inline void require(int status, const std::string& call) {
  if (status == 0) return;
  const char* message = aclGetRecentErrMsg();
  throw std::runtime_error(call + " answered " + std::to_string(status) + ": " +
                           (message == nullptr ? "" : message));
}

class Array {
 public:
  Array(const std::vector<int64_t>& dims, aclDataType dtype) : dtype_(dtype) {
    for (const int64_t dim : dims) count_ *= static_cast<size_t>(dim);
    const size_t bytes = std::max<size_t>(size(), 1);
    require(aclrtMalloc(&memory_, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    require(aclrtMemset(memory_, bytes, 0, bytes), "aclrtMemset");
    handle_ = aclCreateTensor(dims.data(), dims.size(), dtype, nullptr, 0, ACL_FORMAT_ND,
                              dims.data(), dims.size(), memory_);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    static_cast<void>(aclDestroyTensor(handle_));
    static_cast<void>(aclrtFree(memory_));
  }

  aclTensor* handle() const { return handle_; }
  aclDataType dtype() const { return dtype_; }
  size_t count() const { return count_; }
  size_t size() const { return count_ * dtype_size(dtype_); }

  // value(i) for each element, rounded to the dtype.
  void fill(const std::function<double(size_t)>& value) {
    std::vector<uint8_t> bytes(size());
    const size_t step = dtype_size(dtype_);
    for (size_t i = 0; i < count_; ++i) test::store_element(dtype_, value(i), &bytes[i * step]);
    require(aclrtMemcpy(memory_, size(), bytes.data(), size(), ACL_MEMCPY_HOST_TO_DEVICE),
            "aclrtMemcpy");
  }
  std::vector<double> values() const {
    std::vector<uint8_t> bytes(size());
    require(aclrtMemcpy(bytes.data(), size(), memory_, size(), ACL_MEMCPY_DEVICE_TO_HOST),
            "aclrtMemcpy");
    std::vector<double> out(count_);
    const size_t step = dtype_size(dtype_);
    for (size_t i = 0; i < count_; ++i) out[i] = test::load_element(dtype_, &bytes[i * step]);
    return out;
  }

 private:
  aclDataType dtype_;
  size_t count_ = 1;
  void* memory_ = nullptr;
  aclTensor* handle_ = nullptr;
};

using PhaseOne = std::function<aclnnStatus(uint64_t*, aclOpExecutor**)>;
using PhaseTwo = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

// Median time of seven runs after one to warm up.
inline double time_runs(const std::string& name, const PhaseOne& one, PhaseTwo two) {
  constexpr int kRuns = 7;
  aclrtStream stream = nullptr;
  require(aclrtCreateStream(&stream), "aclrtCreateStream");
  void* workspace = nullptr;
  uint64_t held = 0;
  std::vector<double> seconds;
  for (int run = 0; run <= kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    uint64_t needed = 0;
    aclOpExecutor* executor = nullptr;
    require(one(&needed, &executor), name + "GetWorkspaceSize");
    if (needed > held) {
      require(aclrtMalloc(&workspace, needed, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
      held = needed;
    }
    require(two(workspace, needed, executor, stream), name);
    require(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (run > 0) seconds.push_back(taken.count());
  }
  if (workspace != nullptr) require(aclrtFree(workspace), "aclrtFree");
  require(aclrtDestroyStream(stream), "aclrtDestroyStream");
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return seconds[kRuns / 2];
}

// The largest error of an output, in units of what is promised for each element.
inline double largest_error(const Array& got, const std::vector<double>& exact,
                            const std::vector<double>& magnitude, double terms) {
  const std::vector<double> values = got.values();
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double allowed = test::tolerance(exact[i], magnitude[i], got.dtype(), terms);
    const double error = std::abs(values[i] - exact[i]) / allowed;
    largest = std::isnan(error) ? INFINITY : std::max(largest, error);
  }
  return largest;
}

}  // namespace aclgrad::demo

#endif  // ACLGRAD_DEMO_ARRAY_H_
