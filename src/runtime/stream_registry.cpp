// SPDX-License-Identifier: Apache-2.0
#include "runtime/stream_registry.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>

#include "runtime/callback.h"
#include "runtime/context.h"
#include "runtime/process.h"

namespace aclgrad::streams {
namespace {

constinit StreamTable stream_table{Kind::kStream};
constinit std::atomic<int32_t> next_id{0};
constinit std::mutex list_mutex;

// The stream that this thread used last. Lies in the thread's own block from its beginning, where
// it takes two instructions to find; without a destructor, for which the thread would have to
// register itself, which aborts the process where there is no memory.
struct Kept {
  StreamTable::Pin* pin() { return std::launder(reinterpret_cast<StreamTable::Pin*>(room)); }
  alignas(StreamTable::Pin) std::byte room[sizeof(StreamTable::Pin)];
  bool there;
  bool busy;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Kept kept{};

void let_go(void* = nullptr) {
  if (!kept.there || kept.busy) return;
  kept.there = false;
  std::destroy_at(kept.pin());
}

// Its value is not read: what counts is that the thread's end lets go of what it kept.
pthread_key_t kept_key;
const bool kept_key_made = pthread_key_create(&kept_key, let_go) == 0;

bool keep(aclrtStream handle) {
  let_go();
  if (!kept_key_made || pthread_setspecific(kept_key, &kept) != 0) return false;
  StreamTable::Pin pin = stream_table.pin(handle);
  kept.there = static_cast<bool>(pin);
  if (kept.there) std::construct_at(kept.pin(), std::move(pin));
  return kept.there;
}

// Of a device with queues of its own nothing is kept: what ends such a stream ends them, too.
Pin pin_of(aclrtStream handle) {
  if (kept.busy || backend().has_queues()) return Pin(stream_table.pin(handle));
  const bool here = (kept.there && kept.pin()->is_of(handle)) || keep(handle);
  return here ? Pin(**kept.pin(), kept.busy) : Pin(stream_table.pin(handle));
}

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

Pin resolve(const char* function, aclrtStream handle, Status dead, Status& refusal) {
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
  Pin pin = pin_of(handle);
  if (!pin) {
    refusal = fail(dead, "%s: stream %p is %s, expected a live stream", function, handle,
                   handle::describe(handle, Kind::kStream));
    return pin;
  }
  refusal = backend().check(function, pin->device);
  return refusal == kOk ? std::move(pin) : Pin();
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
    if (kept.there && kept.pin()->is_of(handle)) let_go();
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
