// SPDX-License-Identifier: Apache-2.0
// The environment variables that the runtime reads, once, at the first call that needs them. A
// wrong value is named on stderr and ignored.
#ifndef ACLGRAD_RUNTIME_SETTINGS_H_
#define ACLGRAD_RUNTIME_SETTINGS_H_

#include <array>
#include <cstdint>

#include "runtime/backend.h"

namespace aclgrad {

struct Settings {
  bool launch_blocking = false;  // ASCEND_LAUNCH_BLOCKING, ACL_LAUNCH_BLOCKING
  int32_t devices = 1;           // after ASCEND_RT_VISIBLE_DEVICES
  std::array<int32_t, kMostDevices> device_numbers{};  // what each is without it
  int32_t threads = 0;                                 // ACLGRAD_THREADS; 0: not set
};

const Settings& settings() noexcept;

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_SETTINGS_H_
