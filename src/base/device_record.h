// SPDX-License-Identifier: Apache-2.0
// What a kernel on a device leaves for the host about an error in its data.
#ifndef ACLGRAD_BASE_DEVICE_RECORD_H_
#define ACLGRAD_BASE_DEVICE_RECORD_H_

#include <cstdint>

namespace aclgrad {

// Written by one thread of a kernel, read when the device has done the work. 0: no error. What the
// numbers mean the operator says.
struct alignas(64) DeviceRecord {
  int64_t rule = 0;
  int64_t numbers[7] = {};
};

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_DEVICE_RECORD_H_
