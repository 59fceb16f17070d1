// SPDX-License-Identifier: Apache-2.0
#include "base/verbose.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace aclgrad {
namespace {

constexpr size_t kLine = 1024;

// One write for the whole line, so that lines of several threads do not mix.
void write_line(const char* text) {
  char line[kLine];
  const int length = std::snprintf(line, sizeof line - 1, "%s", text);
  if (length < 0) return;
  size_t size = std::strlen(line);
  line[size++] = '\n';
  const char* at = line;
  while (size > 0) {
    const ssize_t written = ::write(STDERR_FILENO, at, size);
    if (written <= 0) return;
    at += written;
    size -= static_cast<size_t>(written);
  }
}

struct Name {
  char text[64];
};
std::mutex rejected_mutex;
std::array<Name, 32> rejected{};
size_t rejected_count = 0;

// True the first time a name is seen.
bool first_rejection(const char* variable) {
  const std::lock_guard lock(rejected_mutex);
  for (size_t i = 0; i < rejected_count; ++i) {
    if (std::strncmp(rejected[i].text, variable, sizeof(Name::text) - 1) == 0) return false;
  }
  if (rejected_count == rejected.size()) return false;
  std::snprintf(rejected[rejected_count].text, sizeof(Name::text), "%s", variable);
  ++rejected_count;
  return true;
}

bool read_verbose() {
  const char* value = std::getenv("ACLGRAD_VERBOSE");
  if (value == nullptr || *value == '\0' || std::strcmp(value, "0") == 0) return false;
  if (std::strcmp(value, "1") == 0) return true;
  aclgrad_reject_knob("ACLGRAD_VERBOSE", value, "0 or 1");
  return false;
}

enum : int { kUnread = 0, kQuiet = 1, kVerbose = 2 };
std::atomic<int> verbose_state{kUnread};

}  // namespace

extern "C" {

bool aclgrad_verbose() noexcept {
  int state = verbose_state.load(std::memory_order_relaxed);
  if (state == kUnread) [[unlikely]] {
    state = read_verbose() ? kVerbose : kQuiet;
    verbose_state.store(state, std::memory_order_relaxed);
  }
  return state == kVerbose;
}

void aclgrad_print_line(const char* text) noexcept { write_line(text); }

void aclgrad_reject_knob(const char* variable, const char* value, const char* expected) noexcept {
  if (!first_rejection(variable)) return;
  char line[kLine];
  std::snprintf(line, sizeof line, "aclgrad: %s=%s ignored; expected %s", variable, value,
                expected);
  write_line(line);
}

}  // extern "C"

}  // namespace aclgrad
