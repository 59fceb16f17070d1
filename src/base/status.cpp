// SPDX-License-Identifier: Apache-2.0
// The per-thread message slot: at most 32 messages, read and emptied by aclGetRecentErrMsg; and the
// refusal to work in a forked child.
#include "base/status.h"

#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>

#include "base/thread_messages.h"

namespace aclgrad {
namespace {

constexpr size_t kMaxMessages = 32;
constexpr size_t kFixedText = 512;

// A ring of the newest messages; `taken` is the text handed out last.
struct Messages {
  std::array<std::string, kMaxMessages> texts;
  size_t newest = 0;
  size_t count = 0;
  std::string taken;
};

// Constant-initialised, so usable before, during and after the destructors of the thread's objects.
constinit thread_local Messages* messages = nullptr;
constinit thread_local Status thread_last_error = kOk;
// Where a message goes for which there is no memory.
constinit thread_local bool fixed_text_set = false;
constinit thread_local char fixed_text[kFixedText] = {};
constinit thread_local char fixed_taken[kFixedText] = {};

// Frees the ring when its thread ends. A thread_local object with a destructor would abort the
// process where there is no memory to register it.
pthread_key_t ring_key;
bool ring_key_made = false;

void free_ring(void*) {
  delete messages;
  messages = nullptr;
}

Messages* ring() {
  if (messages == nullptr) {
    auto made = std::make_unique<Messages>();
    if (!ring_key_made || pthread_setspecific(ring_key, made.get()) != 0) throw std::bad_alloc();
    messages = made.release();
  }
  return messages;
}

const char* category(Status code) {
  const int family = code / 1000;
  if (family == 161) return "AclNN_Parameter_Error(EZ1001)";
  if (family == 561) return "AclNN_Inner_Error(EZ9999)";
  if (family == 100 || family == 107 || family == 148) return "Invalid_Argument(EE1001)";
  return "Runtime_Error(EE9999)";
}

bool is_aclnn(Status code) {
  const int family = code / 1000;
  return family == 161 || family == 361 || family == 561;
}

// "[PID: 7] 2024-01-31-11:07:03.123.456 Invalid_Argument(EE1001): "
void write_prefix(Status code, std::array<char, 128>& out) {
  timeval now{};
  gettimeofday(&now, nullptr);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  char date[32];
  if (std::strftime(date, sizeof date, "%Y-%m-%d-%H:%M:%S", &local) == 0) date[0] = '\0';
  const long micros = now.tv_usec;
  std::snprintf(out.data(), out.size(), "[PID: %d] %s.%03ld.%03ld %s: ", static_cast<int>(getpid()),
                date, micros / 1000, micros % 1000, category(code));
}

[[gnu::format(printf, 2, 0)]] void store(const std::array<char, 128>& prefix, const char* format,
                                         va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  try {
    Messages* const all = ring();
    const int length = std::vsnprintf(nullptr, 0, format, again);
    std::string text(prefix.data());
    const size_t start = text.size();
    text.resize(start + static_cast<size_t>(length < 0 ? 0 : length));
    // The terminating zero falls on the string's own.
    std::vsnprintf(text.data() + start, text.size() - start + 1, format, arguments);
    all->newest = (all->newest + 1) % kMaxMessages;
    all->texts[all->newest] = std::move(text);
    if (all->count < kMaxMessages) ++all->count;
  } catch (const std::bad_alloc&) {
    const int start = std::snprintf(fixed_text, sizeof fixed_text, "%s", prefix.data());
    const auto used = static_cast<size_t>(start < 0 ? 0 : start);
    std::vsnprintf(fixed_text + used, sizeof fixed_text - used, format, arguments);
    fixed_text_set = true;
  }
  va_end(again);
}

const char* take_fixed_text() {
  std::snprintf(fixed_taken, sizeof fixed_taken, "%s", fixed_text);
  fixed_text_set = false;
  return fixed_taken;
}

std::atomic<bool> forked{false};

// Before any thread of the program can fork or fail.
[[gnu::constructor]] void prepare() {
  ring_key_made = pthread_key_create(&ring_key, free_ring) == 0;
  pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
}

}  // namespace

const char* take_messages() noexcept {
  if (messages == nullptr) return fixed_text_set ? take_fixed_text() : nullptr;
  Messages& all = *messages;
  if (all.count == 0) return fixed_text_set ? take_fixed_text() : nullptr;
  all.taken.clear();
  try {
    if (fixed_text_set) all.taken += take_fixed_text();
    for (size_t i = 0; i < all.count; ++i) {
      if (!all.taken.empty()) all.taken += '\n';
      all.taken += all.texts[(all.newest + kMaxMessages - i) % kMaxMessages];
    }
  } catch (const std::bad_alloc&) {
    std::snprintf(fixed_text, sizeof fixed_text, "%s", all.texts[all.newest].c_str());
    all.count = 0;
    return take_fixed_text();
  }
  for (std::string& text : all.texts) text.clear();
  all.count = 0;
  return all.taken.c_str();
}

Status last_error() noexcept { return thread_last_error; }
void reset_last_error() noexcept { thread_last_error = kOk; }

extern "C" {

Status aclgrad_fail(Status code, const char* format, ...) noexcept {
  if (!is_aclnn(code)) thread_last_error = code;
  std::array<char, 128> prefix{};
  write_prefix(code, prefix);
  va_list arguments;
  va_start(arguments, format);
  store(prefix, format, arguments);
  va_end(arguments);
  return code;
}

Status aclgrad_check_process(const char* function) noexcept {
  if (!forked.load(std::memory_order_relaxed)) [[likely]]
    return kOk;
  return aclgrad_fail(ACL_ERROR_INTERNAL_ERROR,
                      "%s: called in a forked child of a process that had loaded the library; "
                      "expected a call from the process that loaded it, or after exec",
                      function);
}

}  // extern "C"

}  // namespace aclgrad
