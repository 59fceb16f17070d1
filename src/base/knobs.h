// SPDX-License-Identifier: Apache-2.0
// Environment variables that more than one library reads.
#ifndef ACLGRAD_BASE_KNOBS_H_
#define ACLGRAD_BASE_KNOBS_H_

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <system_error>

#include "base/verbose.h"

namespace aclgrad {

// Null when the variable is unset or empty.
inline const char* knob(const char* name) noexcept {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

// Which of the words a variable says, counted from 0; -1 when it is unset, or says another one,
// which is told: `expected` is what the words are for a reader.
inline int chosen_word(const char* name, std::initializer_list<const char*> words,
                       const char* expected) noexcept {
  const char* const value = knob(name);
  if (value == nullptr) return -1;
  int chosen = 0;
  for (const char* const word : words) {
    if (std::strcmp(value, word) == 0) return chosen;
    ++chosen;
  }
  aclgrad_reject_knob(name, value, expected);
  return -1;
}

inline constexpr int kMostThreads = 1024;

// ACLGRAD_THREADS; 0 when it is unset or wrong.
inline int threads_knob() noexcept {
  const char* const value = knob("ACLGRAD_THREADS");
  if (value == nullptr) return 0;
  const char* const end = value + std::strlen(value);
  int threads = 0;
  const auto [rest, error] = std::from_chars(value, end, threads);
  if (error == std::errc() && rest == end && threads >= 1 && threads <= kMostThreads)
    return threads;
  aclgrad_reject_knob("ACLGRAD_THREADS", value, "a number from 1 to 1024");
  return 0;
}

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_KNOBS_H_
