// SPDX-License-Identifier: Apache-2.0
// Streams that wait for a thread of the program: what must go on meanwhile, because that thread may
// wait for it.
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "support/device.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

// CUDA waits for the stream when it is given memory that it does not know; what the stream waits
// for may need to queue something.
TEST(CudaDevice, ACopyOfUnknownMemoryLeavesTheStreamOpen) {
  use_device();
  static std::atomic<bool> ready{false};
  static aclrtStream mine = nullptr;
  static void* target = nullptr;
  const DeviceMemory memory(64), other(64);
  target = other.get();
  ASSERT_EQ(aclrtCreateStream(&mine), 0);
  std::atomic<bool> ended{false};
  std::thread reports([&] {
    use_device();
    EXPECT_EQ(aclrtSubscribeReport(static_cast<uint64_t>(pthread_self()), mine), 0);
    ready = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the copy has begun
    while (!ended) aclrtProcessReport(10);
  });
  while (!ready) std::this_thread::yield();
  const auto queue_more = [](void*) { EXPECT_EQ(aclrtMemsetAsync(target, 64, 3, 64, mine), 0); };
  ASSERT_EQ(aclrtLaunchCallback(queue_more, nullptr, ACL_CALLBACK_BLOCK, mine), 0);
  std::array<uint8_t, 64> local{};
  local[5] = 7;
  EXPECT_EQ(aclrtMemcpyAsync(memory.get(), 64, local.data(), 64, ACL_MEMCPY_HOST_TO_DEVICE, mine),
            0);
  EXPECT_EQ(aclrtSynchronizeStream(mine), 0);
  EXPECT_EQ(aclrtMemcpy(local.data(), 64, other.get(), 64, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  EXPECT_EQ(local[5], 3);
  EXPECT_EQ(aclrtMemcpy(local.data(), 64, memory.get(), 64, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  EXPECT_EQ(local[5], 7);
  ended = true;
  reports.join();
  EXPECT_EQ(aclrtDestroyStream(mine), 0);
}

// CUDA may call what a stream has for the host on one thread for all streams; a callback that waits
// there for its thread must not be in the way of what that thread waits for.
TEST(CudaDevice, ABlockingCallbackIsInNobodysWay) {
  use_device();
  static aclrtStream other = nullptr;
  static std::atomic<int> called{0};
  aclrtStream held = nullptr;
  ASSERT_EQ(aclrtCreateStream(&held), 0);
  ASSERT_EQ(aclrtCreateStream(&other), 0);
  std::atomic<bool> ready{false}, ended{false};
  std::thread reports([&] {
    use_device();
    const auto self = static_cast<uint64_t>(pthread_self());
    EXPECT_EQ(aclrtSubscribeReport(self, held), 0);
    EXPECT_EQ(aclrtSubscribeReport(self, other), 0);
    ready = true;
    while (!ended) aclrtProcessReport(10);
  });
  while (!ready) std::this_thread::yield();
  const auto wait_for_other = [](void*) {
    const auto count = [](void*) { ++called; };
    EXPECT_EQ(aclrtLaunchCallback(count, nullptr, ACL_CALLBACK_NO_BLOCK, other), 0);
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(other, 5000), 0) << take_message();
  };
  ASSERT_EQ(aclrtLaunchCallback(wait_for_other, nullptr, ACL_CALLBACK_BLOCK, held), 0);
  const auto count = [](void*) { ++called; };
  ASSERT_EQ(aclrtLaunchCallback(count, nullptr, ACL_CALLBACK_BLOCK, held), 0);
  EXPECT_EQ(aclrtSynchronizeStream(held), 0);
  ended = true;
  reports.join();
  EXPECT_EQ(called, 2);
  EXPECT_EQ(aclrtDestroyStream(held), 0);
  EXPECT_EQ(aclrtDestroyStream(other), 0);
}

// Nor does an operator with lists of the host's, which come to the device somehow, wait for the
// stream.
TEST(CudaDevice, LongListsDoNotWait) {
  use_device();
  constexpr int64_t kSequences = 300, kTokens = kSequences * 40;
  Tensor x({kTokens, 1, 16}, ACL_FLOAT16), dy({kSequences, 1, 16}, ACL_FLOAT16);
  Tensor w({32, 1}, ACL_FLOAT16), dx({kTokens, 1, 16}, ACL_FLOAT16), dw({32, 1}, ACL_FLOAT16);
  x.fill_constant(1.0);
  dy.fill_constant(2.0);
  w.fill_constant(0.5);
  Dims ends;
  for (int64_t i = 1; i <= kSequences; ++i) ends.push_back(i * 40);
  const IntArray array(ends);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnNsaCompressGradGetWorkspaceSize(dy.handle(), x.handle(), w.handle(),
                                                 array.handle(), 32, 16, 0, nullptr, dx.handle(),
                                                 dw.handle(), &size, &executor),
            0)
      << take_message();
  const DeviceMemory workspace(size);
  static aclrtStream held = nullptr;
  static std::atomic<bool> returned{false}, in_time{false};
  ASSERT_EQ(aclrtCreateStream(&held), 0);
  std::atomic<bool> ready{false}, ended{false};
  std::thread reports([&] {
    use_device();
    EXPECT_EQ(aclrtSubscribeReport(static_cast<uint64_t>(pthread_self()), held), 0);
    ready = true;
    while (!ended) aclrtProcessReport(10);
  });
  while (!ready) std::this_thread::yield();
  const auto hold = [](void*) {
    for (int i = 0; i < 3000 && !returned; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    in_time = returned.load();
  };
  ASSERT_EQ(aclrtLaunchCallback(hold, nullptr, ACL_CALLBACK_BLOCK, held), 0);
  EXPECT_EQ(aclnnNsaCompressGrad(workspace.get(), size, executor, held), 0) << take_message();
  returned = true;
  EXPECT_EQ(aclrtSynchronizeStream(held), 0);
  ended = true;
  reports.join();
  EXPECT_TRUE(in_time) << "phase two waited for the stream";
  // A window a sequence: each weight has met one token of each, eight tokens of it are covered by
  // none.
  EXPECT_EQ(dw.values(), std::vector<double>(32, kSequences * 16 * 2.0));
  std::vector<double> expected(kTokens * 16);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = i / 16 % 40 < 32 ? 1.0 : 0.0;
  EXPECT_EQ(dx.values(), expected);
  EXPECT_EQ(aclrtDestroyStream(held), 0);
}

}  // namespace
}  // namespace aclgrad::test
