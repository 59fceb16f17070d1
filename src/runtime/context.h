// SPDX-License-Identifier: Apache-2.0
// Contexts and the device they belong to. A context has a default stream; a device has a default
// context while it is set; each thread has a current context or none.
#ifndef ACLGRAD_RUNTIME_CONTEXT_H_
#define ACLGRAD_RUNTIME_CONTEXT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "acl/acl_rt.h"
#include "base/handle_table.h"
#include "base/status.h"
#include "runtime/data_errors.h"

namespace aclgrad {

// Parameters of aclrtSetSysParamOpt and its kin, each unset until it is set.
class SystemParameters {
 public:
  static constexpr size_t kCount = 4;
  static constexpr bool known(int option) {
    return option >= ACL_OPT_DETERMINISTIC && option <= ACL_OPT_ENABLE_KERNEL_EARLY_START;
  }
  void set(int option, int64_t value) {
    const std::lock_guard lock(mutex_);
    values_[static_cast<size_t>(option)] = value;
  }
  std::optional<int64_t> get(int option) const {
    const std::lock_guard lock(mutex_);
    return values_[static_cast<size_t>(option)];
  }

 private:
  mutable std::mutex mutex_;
  std::array<std::optional<int64_t>, kCount> values_{};
};

struct Context {
  int32_t device = 0;
  bool is_default = false;
  std::atomic<aclrtStream> default_stream{nullptr};
  SystemParameters parameters;

  Context(int32_t device_number, bool is_default_context)
      : device(device_number), is_default(is_default_context) {}
};

using ContextTable = HandleTable<Context>;

namespace contexts {

ContextTable& table() noexcept;

// Makes a context with its default stream, or refuses where the device makes none. Throws
// std::bad_alloc; either way nothing is left behind.
Status create(const char* function, int32_t device, bool is_default, aclrtContext& context);
// Ends the context's streams, after their work, then the context. False when it was ended already.
bool destroy(aclrtContext context, DataErrorList& errors);

void set_current(aclrtContext context) noexcept;
// The current context's handle if it lives, else null.
aclrtContext current() noexcept;
aclrtStream current_default_stream() noexcept;
// Of the current context; 0 where there is none.
int32_t current_device() noexcept;
// The current context, or an empty pin and a message (107002).
ContextTable::Pin require_current(const char* function, Status& refusal);

// Reference counts of the device's default context. `retain` makes it current.
Status retain_device(const char* function, int32_t device);
enum class Release : uint8_t { kNotSet, kStillSet, kLast };
// How often retain_device() was called and not taken back.
uint64_t device_references(int32_t device) noexcept;
Release release_device(int32_t device, aclrtContext& default_context);

}  // namespace contexts
}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_CONTEXT_H_
