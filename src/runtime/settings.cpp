// SPDX-License-Identifier: Apache-2.0
#include "runtime/settings.h"

#include <cstdlib>
#include <cstring>

#include "base/knobs.h"
#include "base/verbose.h"

namespace aclgrad {
namespace {

// Devices of this machine before ASCEND_RT_VISIBLE_DEVICES: the CPU.
constexpr int32_t kDevices = 1;

bool read_flag(const char* name) {
  const char* value = knob(name);
  if (value == nullptr || std::strcmp(value, "0") == 0) return false;
  if (std::strcmp(value, "1") == 0) return true;
  aclgrad_reject_knob(name, value, "0 or 1");
  return false;
}

// A decimal number of digits only, at `text`; moves `text` behind it. -1 when there is none.
long read_number(const char*& text) {
  if (*text < '0' || *text > '9') return -1;
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  text = end;
  return number;
}

// "0" or "0,1": each number a device that is there, none twice. Returns how many remain visible.
int32_t read_visible_devices() {
  const char* value = knob("ASCEND_RT_VISIBLE_DEVICES");
  if (value == nullptr) return kDevices;
  bool seen[kDevices] = {};
  int32_t count = 0;
  for (const char* rest = value;; ++rest) {
    const long number = read_number(rest);
    const bool good = number >= 0 && number < kDevices && !seen[number];
    if (!good || (*rest != ',' && *rest != '\0')) break;
    seen[number] = true;
    ++count;
    if (*rest == '\0') return count;
  }
  aclgrad_reject_knob("ASCEND_RT_VISIBLE_DEVICES", value,
                      "a comma-separated list of different device numbers; the only device is 0");
  return kDevices;
}

void check_device_knob() {
  const char* value = knob("ACLGRAD_DEVICE");
  if (value == nullptr || std::strcmp(value, "cpu") == 0) return;
  const bool cuda = std::strcmp(value, "cuda") == 0;
  aclgrad_reject_knob("ACLGRAD_DEVICE", value, cuda ? "cpu; this build has no CUDA" : "cpu");
}

Settings read_settings() {
  check_device_knob();
  Settings read;
  const bool ascend_blocking = read_flag("ASCEND_LAUNCH_BLOCKING");
  const bool acl_blocking = read_flag("ACL_LAUNCH_BLOCKING");
  read.launch_blocking = ascend_blocking || acl_blocking;
  read.devices = read_visible_devices();
  read.threads = threads_knob();
  return read;
}

}  // namespace

const Settings& settings() noexcept {
  static const Settings kRead = read_settings();
  return kRead;
}

}  // namespace aclgrad
