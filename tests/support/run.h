// SPDX-License-Identifier: Apache-2.0
// Both phases of one call, as a program makes them, with a poisoned workspace of exactly the
// planned size between guard bytes.
#ifndef ACLGRAD_TESTS_SUPPORT_RUN_H_
#define ACLGRAD_TESTS_SUPPORT_RUN_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "aclnn/acl_meta.h"
#include "support/device.h"
#include "support/tensor.h"

namespace aclgrad::test {

inline constexpr aclnnStatus kNotReached = -1;

// Phase two of any operator.
using Execute = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

struct Outcome {
  aclnnStatus phase_one = kNotReached;
  aclnnStatus phase_two = kNotReached;
  aclError synchronise = kNotReached;
  uint64_t workspace_size = 0;
  std::string message;  // of the call that failed, else ""

  bool ok() const { return phase_one == 0 && phase_two == 0 && synchronise == 0; }
  // The first status that is not 0; 0 if there is none.
  int status() const {
    if (phase_one != 0) return phase_one;
    return phase_two != 0 ? phase_two : synchronise;
  }
};

// Prints what happened: EXPECT_TRUE(outcome.ok()) << outcome;
inline std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << "phase one " << outcome.phase_one << ", phase two " << outcome.phase_two
             << ", synchronise " << outcome.synchronise << ", workspace " << outcome.workspace_size
             << ": " << outcome.message;
}

// Poisoned memory between guards.
class Workspace {
 public:
  explicit Workspace(uint64_t size) : size_(size), memory_(size == 0 ? 0 : size + 2 * kGuard) {
    if (size_ == 0) return;
    require(aclrtMemset(memory_.get(), bytes(), kPoison, bytes()), "aclrtMemset");
  }
  void* get() const { return size_ == 0 ? nullptr : static_cast<uint8_t*>(memory_.get()) + kGuard; }
  uint64_t size() const { return size_; }
  bool guards_intact() const {
    if (size_ == 0) return true;
    std::vector<uint8_t> image(bytes());
    require(aclrtMemcpy(image.data(), bytes(), memory_.get(), bytes(), ACL_MEMCPY_DEVICE_TO_HOST),
            "aclrtMemcpy");
    const auto poisoned = [](uint8_t byte) { return byte == kPoison; };
    const auto guard = static_cast<std::ptrdiff_t>(kGuard);
    return std::all_of(image.begin(), image.begin() + guard, poisoned) &&
           std::all_of(image.end() - guard, image.end(), poisoned);
  }

 private:
  static constexpr size_t kGuard = 128;
  size_t bytes() const { return size_ + 2 * kGuard; }
  uint64_t size_;
  DeviceMemory memory_;
};

// plan: (uint64_t* workspace_size, aclOpExecutor** executor) -> aclnnStatus, phase one with its
// arguments bound. A failing phase one must leave both untouched.
template <class Plan>
Outcome run(Plan&& plan, Execute execute, aclrtStream on = nullptr) {
  const aclrtStream used = on == nullptr ? stream() : on;
  Outcome outcome;
  constexpr uint64_t kUntouched = 0xABADCAFEu;
  auto* const sentinel = reinterpret_cast<aclOpExecutor*>(&outcome);
  aclOpExecutor* executor = sentinel;
  outcome.workspace_size = kUntouched;
  take_message();
  outcome.phase_one = plan(&outcome.workspace_size, &executor);
  if (outcome.phase_one != 0) {
    outcome.message = take_message();
    EXPECT_EQ(outcome.workspace_size, kUntouched) << "a failing phase one wrote the size";
    EXPECT_EQ(executor, sentinel) << "a failing phase one wrote the executor";
    return outcome;
  }
  EXPECT_NE(executor, sentinel) << "phase one succeeded without an executor";
  const Workspace workspace(outcome.workspace_size);
  outcome.phase_two = execute(workspace.get(), workspace.size(), executor, used);
  if (outcome.phase_two != 0) outcome.message = take_message();
  outcome.synchronise = aclrtSynchronizeStream(used);
  if (outcome.synchronise != 0) outcome.message += take_message();
  EXPECT_TRUE(workspace.guards_intact()) << "bytes outside the workspace were written";
  return outcome;
}

inline void expect_message(const std::string& message,
                           std::initializer_list<std::string> substrings) {
  for (const std::string& substring : substrings) {
    EXPECT_NE(message.find(substring), std::string::npos)
        << "the message lacks '" << substring << "': " << message;
  }
}

// A finished call failed with `status` (wherever) and said so.
inline void expect_refused(const Outcome& outcome, int status,
                           std::initializer_list<std::string> substrings) {
  EXPECT_EQ(outcome.status(), status) << outcome;
  expect_message(outcome.message, substrings);
}

// Phase one refuses with `status`, a message, and its outputs untouched.
template <class Plan>
requires std::is_invocable_r_v<aclnnStatus, Plan, uint64_t*, aclOpExecutor**>
void expect_refused(Plan&& plan, aclnnStatus status,
                    std::initializer_list<std::string> substrings) {
  constexpr uint64_t kUntouched = 0xABADCAFEu;
  uint64_t size = kUntouched;
  auto* const sentinel = reinterpret_cast<aclOpExecutor*>(&size);
  aclOpExecutor* executor = sentinel;
  use_device();
  take_message();
  const aclnnStatus got = plan(&size, &executor);
  const std::string message = take_message();
  EXPECT_EQ(got, status) << message;
  if (got == 0) {
    static_cast<void>(aclDestroyAclOpExecutor(executor));
    return;
  }
  EXPECT_EQ(size, kUntouched) << "a failing phase one wrote the size";
  EXPECT_EQ(executor, sentinel) << "a failing phase one wrote the executor";
  expect_message(message, substrings);
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_RUN_H_
