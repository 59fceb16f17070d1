// SPDX-License-Identifier: Apache-2.0
// Memory that a call takes for its kernels beside the workspace. On the emulated devices only,
// where a test says which call of CUDA is refused.
#include <gtest/gtest.h>

#include <vector>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "faults.h"
#include "runtime/services.h"
#include "support/device.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

// Memory that is short makes the call wait, and other threads' work may come to the stream
// meanwhile. It may use the same workspace: nothing of the call may stand there yet.
TEST(Scratch, IsTakenBeforeTheFirstKernel) {
  use_device();
  if (!aclgrad_has_device_queues()) GTEST_SKIP() << "the CPU was chosen";
  const int64_t count = 300;
  Tensor dy({count, 8}, ACL_FLOAT, Arrangement::kTransposed);  // is packed
  Tensor indices({count}, ACL_INT64), dw({40, 8}, ACL_FLOAT);
  std::vector<double> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<double>(i % 40));
  indices.fill(rows);
  dy.fill_normal(1, 0.0, 1.0);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const auto phase_one = [&] {
    return aclnnEmbeddingDenseBackwardGetWorkspaceSize(dy.handle(), indices.handle(), 40, 40, false,
                                                       dw.handle(), &size, &executor);
  };
  ASSERT_EQ(phase_one(), 0) << take_message();
  void* workspace = nullptr;
  ASSERT_EQ(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST), 0) << take_message();
  ASSERT_EQ(aclnnEmbeddingDenseBackward(workspace, size, executor, stream()), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream()), 0) << take_message();
  const std::vector<uint8_t> right = dw.bits();
  int went_on = 0;
  bool failed = true;
  for (int call = 1; call < 100 && failed; ++call) {
    SCOPED_TRACE(testing::Message() << "call " << call);
    dw.fill(std::vector<double>(40 * 8, 9.0));
    ASSERT_EQ(phase_one(), 0) << take_message();
    emulated::fail_call(call, cudaErrorMemoryAllocation);
    const aclnnStatus status = aclnnEmbeddingDenseBackward(workspace, size, executor, stream());
    failed = emulated::call_failed();
    const int launches = emulated::launches();
    emulated::fail_call(0, cudaSuccess);
    EXPECT_TRUE(status == 0 || status == 207001 || status == 361001) << status;
    take_message();
    EXPECT_EQ(aclrtSynchronizeStream(stream()), 0) << take_message();
    if (!failed || status != 0) continue;
    ++went_on;
    const int before = emulated::launches_before_failure();
    EXPECT_TRUE(before == 0 || before == launches) << before << " of " << launches;
    EXPECT_EQ(dw.bits(), right);
  }
  EXPECT_FALSE(failed);
  EXPECT_GT(went_on, 0) << "no call was tried again";
  EXPECT_EQ(aclrtFree(workspace), 0);
}

}  // namespace
}  // namespace aclgrad::test
