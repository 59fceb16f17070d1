// SPDX-License-Identifier: Apache-2.0
// All streams that live, by handle and as a list for what concerns all of them: synchronising a
// device, releasing memory, the end of the process.
#ifndef ACLGRAD_RUNTIME_STREAM_REGISTRY_H_
#define ACLGRAD_RUNTIME_STREAM_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "acl/acl_base.h"
#include "base/handle_table.h"
#include "base/status.h"
#include "runtime/backend.h"

namespace aclgrad {

class Subscription;

// What a stream handle stands for.
struct StreamObject {
  std::shared_ptr<Stream> stream;
  aclrtContext context = nullptr;
  int32_t device = 0;
  int32_t id = 0;
  bool is_default = false;
  // Guarded by the lock of the callbacks (callback.cpp).
  std::shared_ptr<Subscription> subscription;
};

using StreamTable = HandleTable<StreamObject>;

namespace streams {

StreamTable& table() noexcept;

// Refuses where the device makes no stream. Throws std::bad_alloc.
Status create(const char* function, aclrtContext context, int32_t device, bool is_default,
              aclrtStream& stream);

// The live stream behind a handle; null stands for the current context's default stream. Else an
// empty pin and a message; `dead` is the status of a handle that is no live stream.
StreamTable::Pin resolve(const char* function, aclrtStream handle, Status dead, Status& refusal);

struct Listed {
  aclrtStream handle = nullptr;
  aclrtContext context = nullptr;
  int32_t device = 0;
  std::shared_ptr<Stream> stream;
};
std::vector<Listed> all();
std::vector<Listed> of_device(int32_t device);
std::vector<Listed> of_context(aclrtContext context);

// One of the context's live streams, null when none is left. Of one that another thread is ending
// that thread takes care.
aclrtStream first_of_context(aclrtContext context) noexcept;

// Ends a stream: waits for its work (`abandon`: drops what has not started), then takes what it has
// not reported into `errors`. False when the handle was ended by somebody else meanwhile.
bool destroy(aclrtStream handle, bool abandon, DataErrorList& errors);

// The oldest ticket of work in any stream, the largest number when all are idle.
uint64_t oldest_ticket() noexcept;

// Process exit.
void interrupt_all(const Deadline& deadline) noexcept;

}  // namespace streams
}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_STREAM_REGISTRY_H_
