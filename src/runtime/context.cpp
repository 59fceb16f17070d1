// SPDX-License-Identifier: Apache-2.0
#include "runtime/context.h"

#include <new>

#include "runtime/stream_registry.h"

namespace aclgrad::contexts {
namespace {

constinit ContextTable context_table{Kind::kContext};
constinit thread_local aclrtContext current_context = nullptr;

// The one device's default context.
constinit std::mutex device_mutex;
constinit uint64_t references = 0;
constinit aclrtContext default_context_handle = nullptr;

}  // namespace

ContextTable& table() noexcept { return context_table; }

aclrtContext create(int32_t device, bool is_default) {
  aclrtContext context = context_table.create(device, is_default);
  try {
    const ContextTable::Pin pin = context_table.pin(context);
    pin->default_stream.store(streams::create(context, device, true), std::memory_order_release);
  } catch (...) {
    context_table.destroy(context);
    throw;
  }
  return context;
}

bool destroy(aclrtContext context, DataErrorList& errors) {
  if (!context_table.destroy(context)) return false;
  // All of its streams go, whether or not there is memory for the text of an error.
  bool out_of_memory = false;
  for (aclrtStream stream = streams::first_of_context(context); stream != nullptr;
       stream = streams::first_of_context(context)) {
    try {
      streams::destroy(stream, false, errors);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  }
  if (out_of_memory) throw std::bad_alloc();
  return true;
}

void set_current(aclrtContext context) noexcept { current_context = context; }

aclrtContext current() noexcept {
  return context_table.alive(current_context) ? current_context : nullptr;
}

aclrtStream current_default_stream() noexcept {
  const ContextTable::Pin pin = context_table.pin(current_context);
  return pin ? pin->default_stream.load(std::memory_order_acquire) : nullptr;
}

ContextTable::Pin require_current(const char* function, Status& refusal) {
  ContextTable::Pin pin = context_table.pin(current_context);
  if (!pin) {
    refusal = fail(ACL_ERROR_RT_CONTEXT_NULL,
                   "%s: this thread has no current context%s; expected aclrtSetDevice, "
                   "aclrtCreateContext or aclrtSetCurrentContext before",
                   function, current_context == nullptr ? "" : ", the last one was destroyed");
  }
  return pin;
}

void retain_device(int32_t device) {
  const std::lock_guard lock(device_mutex);
  if (default_context_handle == nullptr) default_context_handle = create(device, true);
  ++references;
  current_context = default_context_handle;
}

uint64_t device_references() noexcept {
  const std::lock_guard lock(device_mutex);
  return references;
}

Release release_device(int32_t, aclrtContext& default_context) {
  const std::lock_guard lock(device_mutex);
  if (references == 0) return Release::kNotSet;
  if (--references > 0) return Release::kStillSet;
  default_context = default_context_handle;
  default_context_handle = nullptr;
  return Release::kLast;
}

}  // namespace aclgrad::contexts
