// SPDX-License-Identifier: Apache-2.0
#include "runtime/settings.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/knobs.h"
#include "base/verbose.h"

namespace aclgrad {
namespace {

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

// "0" or "0,1": each number a device that is there, none twice. False when it is something else.
bool read_list(const char* value, int32_t all, Settings& read) {
  std::array<bool, kMostDevices> seen{};
  int32_t count = 0;
  for (const char* rest = value;; ++rest) {
    const long number = read_number(rest);
    const auto index = static_cast<size_t>(number);
    if (number < 0 || number >= all || seen[index] || (*rest != ',' && *rest != '\0')) return false;
    seen[index] = true;
    read.device_numbers[static_cast<size_t>(count++)] = static_cast<int32_t>(number);
    if (*rest != '\0') continue;
    read.devices = count;
    return true;
  }
}

void read_visible_devices(Settings& read) {
  const int32_t all = backend().devices();
  const char* value = knob("ASCEND_RT_VISIBLE_DEVICES");
  if (value != nullptr && read_list(value, all, read)) return;
  read.devices = all;
  for (int32_t i = 0; i < all; ++i) read.device_numbers[static_cast<size_t>(i)] = i;
  if (value == nullptr) return;
  char expected[96];
  std::snprintf(expected, sizeof expected,
                "a comma-separated list of different device numbers; the %s %d",
                all == 1 ? "only device is" : "last device is", all - 1);
  aclgrad_reject_knob("ASCEND_RT_VISIBLE_DEVICES", value, expected);
}

Settings read_settings() {
  Settings read;
  const bool ascend_blocking = read_flag("ASCEND_LAUNCH_BLOCKING");
  const bool acl_blocking = read_flag("ACL_LAUNCH_BLOCKING");
  read.launch_blocking = ascend_blocking || acl_blocking;
  read_visible_devices(read);
  read.threads = threads_knob();
  return read;
}

}  // namespace

const Settings& settings() noexcept {
  static const Settings kRead = read_settings();
  return kRead;
}

}  // namespace aclgrad
