// SPDX-License-Identifier: Apache-2.0
// Tensors on any address, and calls of the tests' own operator (scale_add.h) that take or refuse
// them.
#ifndef ACLGRAD_TESTS_TENSOR_ADDRESSES_H_
#define ACLGRAD_TESTS_TENSOR_ADDRESSES_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scale_add.h"
#include "support/device.h"
#include "support/tensor.h"

namespace aclgrad::test {

// A bare handle on any address, destroyed at the end.
class Handle {
 public:
  Handle(Dims dims, Dims strides, void* address, int64_t offset = 0, Dims storage = {})
      : handle_(aclCreateTensor(dims.data(), dims.size(), ACL_FLOAT, strides.data(), offset,
                                ACL_FORMAT_ND, storage.data(), storage.size(), address)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { aclDestroyTensor(handle_); }
  aclTensor* get() const { return handle_; }

 private:
  aclTensor* handle_;
};

inline float* floats(const DeviceMemory& memory) { return static_cast<float*>(memory.get()); }

// The call is refused by phase one with the addresses given, and by phase two when phase one saw
// null addresses in their place.
inline void expect_refused_in_both(const ScaleAdd& call,
                                   const std::vector<std::string>& substrings) {
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  take_message();
  EXPECT_EQ(plan(call, &size, &executor), 161002);
  std::string message = take_message();
  for (const std::string& text : substrings) expect_message(message, {text});

  const aclTensor* tensors[] = {call.x, call.y, call.out, call.copy_out};
  std::vector<void*> addresses;
  for (const aclTensor* tensor : tensors) {
    void* address = nullptr;
    if (tensor != nullptr) {
      require(aclGetRawTensorAddr(tensor, &address), "aclGetRawTensorAddr");
      require(aclSetRawTensorAddr(const_cast<aclTensor*>(tensor), nullptr), "aclSetRawTensorAddr");
    }
    // One tensor may stand twice: the first read is the true one.
    addresses.push_back(address);
  }
  ASSERT_EQ(plan(call, &size, &executor), 0) << take_message();
  for (size_t i = 0; i < 4; ++i) {
    if (tensors[i] != nullptr && addresses[i] != nullptr) {
      aclSetRawTensorAddr(const_cast<aclTensor*>(tensors[i]), addresses[i]);
    }
  }
  const Workspace workspace(size);
  EXPECT_EQ(execute(workspace.get(), size, executor, stream()), 161002);
  message = take_message();
  for (const std::string& text : substrings) expect_message(message, {text});
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 561000) << "the refusal consumes the executor";
  EXPECT_EQ(aclrtSynchronizeStream(stream()), 0);
}

inline void expect_accepted(const ScaleAdd& call) {
  const Outcome outcome = run_scale_add(call);
  EXPECT_TRUE(outcome.ok()) << outcome;
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_TENSOR_ADDRESSES_H_
