// SPDX-License-Identifier: Apache-2.0
// The emulated devices: which one is the thread's, and whether the thread has a context.
#ifndef ACLGRAD_TESTS_CUDA_EMULATED_DEVICES_H_
#define ACLGRAD_TESTS_CUDA_EMULATED_DEVICES_H_

namespace emulated {

inline constexpr int kMostDevices = 8;

int current_device();

// Where the thread has no context nearly every call makes one on the device that is current, which
// stays.
void need_context();

}  // namespace emulated

#endif  // ACLGRAD_TESTS_CUDA_EMULATED_DEVICES_H_
