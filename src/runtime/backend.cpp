// SPDX-License-Identifier: Apache-2.0
#include "runtime/backend.h"

#include <cstdio>
#include <cstring>

#include "base/config.h"
#include "base/knobs.h"
#include "base/verbose.h"

namespace aclgrad {
namespace {

constexpr const char* kKnob = "ACLGRAD_DEVICE";

Backend* usable_cuda() {
  if constexpr (config::kHasCuda) {
    return cuda_backend();
  } else {
    return nullptr;
  }
}

void reject_cuda(const char* value) {
  if constexpr (config::kHasCuda) {
    char expected[320];
    std::snprintf(expected, sizeof expected, "cpu; there is no usable GPU or driver (%s)",
                  cuda_refusal());
    aclgrad_reject_knob(kKnob, value, expected);
  } else {
    aclgrad_reject_knob(kKnob, value, "cpu; this build has no CUDA");
  }
}

// Nothing of the library has run on a GPU yet, only on the emulated one: so programs get GPUs when
// they ask for them, and the CPU otherwise, also where there is a usable GPU.
Backend& choose() {
  const char* const value = knob(kKnob);
  const bool wants_cuda = value != nullptr && std::strcmp(value, "cuda") == 0;
  const bool wants_cpu = value != nullptr && std::strcmp(value, "cpu") == 0;
  if (value != nullptr && !wants_cpu && !wants_cuda) {
    aclgrad_reject_knob(kKnob, value, config::kHasCuda ? "cpu or cuda" : "cpu");
  }
  Backend* const cuda = wants_cuda ? usable_cuda() : nullptr;
  if (cuda != nullptr) return *cuda;
  if (wants_cuda) reject_cuda(value);
  return cpu_backend();
}

}  // namespace

Backend& backend() noexcept {
  static Backend& chosen = choose();
  return chosen;
}

}  // namespace aclgrad
