// SPDX-License-Identifier: Apache-2.0
// Loops over what must not change a result: instruction sets and thread counts.
#ifndef ACLGRAD_TESTS_SUPPORT_TARGETS_H_
#define ACLGRAD_TESTS_SUPPORT_TARGETS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"
#include "runtime/services.h"
#include "support/sanitizer.h"

namespace aclgrad::test {

inline std::vector<std::string> usable_targets() {
  std::istringstream names(aclgrad_usable_targets());
  std::vector<std::string> out;
  for (std::string name; names >> name;) out.push_back(name);
  return out;
}

// Those that for_each_target() runs.
inline std::vector<std::string> targets_to_run() {
  if (aclgrad_has_device_queues()) return {aclgrad_active_target()};  // none of them computes
  // Which threads touch what does not depend on the instruction set, and SCALAR takes minutes here.
  if (under_thread_sanitizer()) return {aclgrad_active_target()};
  return usable_targets();
}

// Calls fn(name) with every instruction set this machine can run, and makes sure that it is the one
// in use; the one that was chosen before is back afterwards.
template <class Fn>
void for_each_target(Fn&& fn) {
  struct Restore {
    std::string name = aclgrad_active_target();
    ~Restore() { aclgrad_use_target(name.c_str()); }
  } const restore;
  const std::vector<std::string> names = targets_to_run();
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    SCOPED_TRACE("target " + name);
    ASSERT_TRUE(aclgrad_use_target(name.c_str()));
    ASSERT_EQ(std::string(aclgrad_active_target()), name);
    fn(name);
    ASSERT_EQ(std::string(aclgrad_active_target()), name);
  }
}

// Calls fn(n) with these numbers of threads and the one that the process started with; not with one
// thread under ThreadSanitizer, which has nothing to see there.
template <class Fn>
void for_each_thread_count(std::vector<int> counts, Fn&& fn) {
  struct Restore {
    int all = aclgrad_threads();
    ~Restore() { aclgrad_use_threads(all); }
  } const restore;
  if (std::find(counts.begin(), counts.end(), restore.all) == counts.end()) {
    counts.push_back(restore.all);
  }
  if (under_thread_sanitizer()) std::erase(counts, 1);
  if (aclgrad_has_device_queues()) counts = {restore.all};
  for (const int threads : counts) {
    SCOPED_TRACE(std::to_string(threads) + " threads");
    aclgrad_use_threads(threads);
    ASSERT_EQ(aclgrad_threads(), threads);
    fn(threads);
  }
}
template <class Fn>
void for_each_thread_count(Fn&& fn) {
  for_each_thread_count({1, 2, 3}, fn);
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_TARGETS_H_
