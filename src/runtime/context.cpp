// SPDX-License-Identifier: Apache-2.0
#include "runtime/context.h"

#include <new>
#include <utility>

#include "runtime/stream_registry.h"

namespace aclgrad::contexts {
namespace {

constinit ContextTable context_table{Kind::kContext};
constinit thread_local aclrtContext current_context = nullptr;

// A device's default context.
struct DeviceState {
  uint64_t references = 0;
  aclrtContext default_context = nullptr;
};
constinit std::mutex device_mutex;
constinit std::array<DeviceState, kMostDevices> devices{};

DeviceState& state_of(int32_t device) { return devices[static_cast<size_t>(device)]; }

}  // namespace

ContextTable& table() noexcept { return context_table; }

Status create(const char* function, int32_t device, bool is_default, aclrtContext& context) {
  const aclrtContext made = context_table.create(device, is_default);
  Status status = kOk;
  try {
    const ContextTable::Pin pin = context_table.pin(made);
    aclrtStream stream = nullptr;
    status = streams::create(function, made, device, true, stream);
    pin->default_stream.store(stream, std::memory_order_release);
  } catch (...) {
    context_table.destroy(made);
    throw;
  }
  if (status == kOk) {
    context = made;
  } else {
    context_table.destroy(made);
  }
  return status;
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

int32_t current_device() noexcept {
  const ContextTable::Pin pin = context_table.pin(current_context);
  return pin ? pin->device : 0;
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

Status retain_device(const char* function, int32_t device) {
  const std::lock_guard lock(device_mutex);
  DeviceState& state = state_of(device);
  if (state.default_context == nullptr) {
    if (const Status status = create(function, device, true, state.default_context)) return status;
  }
  ++state.references;
  current_context = state.default_context;
  return kOk;
}

uint64_t device_references(int32_t device) noexcept {
  const std::lock_guard lock(device_mutex);
  return state_of(device).references;
}

Release release_device(int32_t device, aclrtContext& default_context) {
  const std::lock_guard lock(device_mutex);
  DeviceState& state = state_of(device);
  if (state.references == 0) return Release::kNotSet;
  if (--state.references > 0) return Release::kStillSet;
  default_context = std::exchange(state.default_context, nullptr);
  return Release::kLast;
}

}  // namespace aclgrad::contexts
