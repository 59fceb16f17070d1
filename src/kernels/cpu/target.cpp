// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/target.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/verbose.h"

namespace aclgrad {
namespace {

// HWY_TARGETS is what this build generates; it depends on compiler flags, which are the same here
// and in every kernel file.
int64_t usable_targets() { return hwy::SupportedTargets() & HWY_TARGETS; }

int64_t target_by_name(const char* name) {
  for (int64_t left = usable_targets(); left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    if (std::strcmp(hwy::TargetName(target), name) == 0) return target;
  }
  return 0;
}

int64_t& active() {
  static int64_t target = 0;
  return target;
}

void use(int64_t target) {
  // The lowest bit is the best target. The baseline stays in the mask: it always exists.
  active() = target;
  hwy::GetChosenTarget().Update(target | HWY_STATIC_TARGET);
}

int64_t best() {
  const int64_t usable = usable_targets();
  return usable & -usable;
}

const std::string& usable_names() {
  static const std::string* names = [] {
    auto* text = new std::string;
    for (int64_t left = usable_targets(); left != 0; left &= left - 1) {
      if (!text->empty()) *text += ' ';
      *text += hwy::TargetName(left & -left);
    }
    return text;
  }();
  return *names;
}

[[gnu::constructor]] void choose_at_load() {
  use(best());
  const char* wanted = std::getenv("ACLGRAD_TARGET");
  if (wanted == nullptr || *wanted == '\0') return;
  if (!aclgrad_use_target(wanted)) {
    aclgrad_reject_knob("ACLGRAD_TARGET", wanted, ("one of " + usable_names()).c_str());
  }
}

}  // namespace

extern "C" {

const char* aclgrad_active_target() noexcept { return hwy::TargetName(active()); }

bool aclgrad_use_target(const char* name) noexcept {
  const int64_t target = name == nullptr ? best() : target_by_name(name);
  if (target == 0) return false;
  use(target);
  return true;
}

const char* aclgrad_usable_targets() noexcept { return usable_names().c_str(); }

}  // extern "C"

}  // namespace aclgrad
