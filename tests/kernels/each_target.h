// SPDX-License-Identifier: Apache-2.0
// Runs kernels that a test compiles itself on every instruction set that this machine has. Included
// before foreach_target.h, and so without highway.h.
#ifndef ACLGRAD_TESTS_KERNELS_EACH_TARGET_H_
#define ACLGRAD_TESTS_KERNELS_EACH_TARGET_H_

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace aclgrad {

// Calls fn(), or fn(first), with each target in use.
template <class Fn>
void for_each_target(Fn&& fn) {
  const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  ASSERT_GE(targets.size(), 1u);
  for (const int64_t target : targets) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    if constexpr (std::is_invocable_v<Fn, bool>) {
      fn(target == targets.front());
    } else {
      fn();
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace aclgrad

#endif  // ACLGRAD_TESTS_KERNELS_EACH_TARGET_H_
