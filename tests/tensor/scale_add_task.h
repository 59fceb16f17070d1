// SPDX-License-Identifier: Apache-2.0
// What the kernel of the tests' own operator (scale_add.h) is given.
#ifndef ACLGRAD_TESTS_TENSOR_SCALE_ADD_TASK_H_
#define ACLGRAD_TESTS_TENSOR_SCALE_ADD_TASK_H_

#include <cstdint>

#include "base/device_record.h"
#include "base/view.h"
#include "kernels/cuda/queue.h"

namespace aclgrad::test {

struct ScaleAddTask {
  View views[4];  // x, y, out, copy_out
  float* addresses[4];
  int64_t count;
  unsigned char* region;  // `book` bytes
  int64_t book;
  DeviceRecord* record;  // null: nothing is reported
};
CudaAnswer scale_add_on_cuda(const ScaleAddTask& task, const CudaQueue& queue);

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_TENSOR_SCALE_ADD_TASK_H_
