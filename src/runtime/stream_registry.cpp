// SPDX-License-Identifier: Apache-2.0
#include "runtime/stream_registry.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "runtime/callback.h"
#include "runtime/context.h"
#include "runtime/process.h"

namespace aclgrad::streams {
namespace {

constinit StreamTable stream_table{Kind::kStream};
constinit std::atomic<int32_t> next_id{0};
constinit std::mutex list_mutex;

std::vector<Listed>& list() {
  static auto* const kList = new std::vector<Listed>;
  return *kList;
}

void unlist(aclrtStream handle) {
  const std::lock_guard lock(list_mutex);
  std::erase_if(list(), [&](const Listed& listed) { return listed.handle == handle; });
}

template <class Predicate>
std::vector<Listed> select(Predicate predicate) {
  const std::lock_guard lock(list_mutex);
  std::vector<Listed> selected;
  for (const Listed& listed : list()) {
    if (predicate(listed)) selected.push_back(listed);
  }
  return selected;
}

}  // namespace

StreamTable& table() noexcept { return stream_table; }

Status create(const char* function, aclrtContext context, int32_t device, bool is_default,
              aclrtStream& stream) {
  process::watch_exit();
  StreamObject object;
  if (const Status status = backend().make_stream(function, device, object.stream)) return status;
  object.context = context;
  object.device = device;
  object.id = next_id.fetch_add(1, std::memory_order_relaxed);
  object.is_default = is_default;
  Listed listed{nullptr, context, device, object.stream};
  const std::lock_guard lock(list_mutex);
  list().reserve(list().size() + 1);
  listed.handle = stream_table.create(std::move(object));
  list().push_back(std::move(listed));
  stream = list().back().handle;
  return kOk;
}

StreamTable::Pin resolve(const char* function, aclrtStream handle, Status dead, Status& refusal) {
  if (handle == nullptr) {
    handle = contexts::current_default_stream();
    if (handle == nullptr) {
      refusal = fail(ACL_ERROR_RT_CONTEXT_NULL,
                     "%s: stream is null, the default stream of the current context, but this "
                     "thread has no current context; expected aclrtSetDevice before",
                     function);
      return {};
    }
  }
  StreamTable::Pin pin = stream_table.pin(handle);
  if (!pin) {
    refusal = fail(dead, "%s: stream %p is %s, expected a live stream", function, handle,
                   handle::describe(handle, Kind::kStream));
    return pin;
  }
  refusal = backend().check(function, pin->device);
  return refusal == kOk ? std::move(pin) : StreamTable::Pin();
}

std::vector<Listed> all() {
  return select([](const Listed&) { return true; });
}

std::vector<Listed> of_device(int32_t device) {
  return select([&](const Listed& listed) { return listed.device == device; });
}

std::vector<Listed> of_context(aclrtContext context) {
  return select([&](const Listed& listed) { return listed.context == context; });
}

aclrtStream first_of_context(aclrtContext context) noexcept {
  const std::lock_guard lock(list_mutex);
  for (const Listed& listed : list()) {
    if (listed.context == context && stream_table.alive(listed.handle)) return listed.handle;
  }
  return nullptr;
}

bool destroy(aclrtStream handle, bool abandon, DataErrorList& errors) {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Subscription> subscription;
  if (const StreamTable::Pin pin = stream_table.pin(handle)) {
    stream = pin->stream;
    if (!stream_table.destroy(handle)) return false;
    subscription = callbacks::detach(*pin);
  }
  if (stream == nullptr) return false;
  if (abandon) {
    callbacks::end(subscription);
    stream->abort();
  } else {
    stream->close();
    callbacks::end(subscription);
  }
  unlist(handle);
  errors.splice(errors.end(), stream->take_errors(UINT64_MAX));
  return true;
}

uint64_t oldest_ticket() noexcept {
  const std::lock_guard lock(list_mutex);
  uint64_t oldest = UINT64_MAX;
  for (const Listed& listed : list()) oldest = std::min(oldest, listed.stream->oldest_ticket());
  return oldest;
}

void interrupt_all(const Deadline& deadline) noexcept {
  const std::lock_guard lock(list_mutex);
  for (const Listed& listed : list()) listed.stream->interrupt();
  for (const Listed& listed : list()) listed.stream->await_running(deadline);
}

}  // namespace aclgrad::streams
