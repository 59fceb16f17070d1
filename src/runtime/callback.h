// SPDX-License-Identifier: Apache-2.0
// Callbacks: queued on a stream, run by the thread that subscribed to the stream when it processes
// reports. A subscription ends with unsubscribing or with the stream: callbacks that have not begun
// by then are dropped, and hold the stream no longer.
#ifndef ACLGRAD_RUNTIME_CALLBACK_H_
#define ACLGRAD_RUNTIME_CALLBACK_H_

#include <cstdint>
#include <memory>

#include "acl/acl_rt.h"
#include "base/status.h"
#include "runtime/stream_registry.h"

namespace aclgrad::callbacks {

Status subscribe(const char* function, uint64_t thread, StreamObject& stream);
Status unsubscribe(const char* function, uint64_t thread, StreamObject& stream);
Status launch(const char* function, aclrtCallback callback, void* data, bool block,
              StreamObject& stream);
Status process(const char* function, uint64_t thread, int32_t timeout);

// For a stream that is being destroyed: takes its subscription away (null when there is none) so
// that nothing new is launched, and ends it, which lets the stream go if a callback holds it.
std::shared_ptr<Subscription> detach(StreamObject& stream) noexcept;
void end(const std::shared_ptr<Subscription>& subscription) noexcept;

// Refuses with `status` on a thread that runs a blocking callback of this stream: waiting for the
// stream there would wait for itself.
Status check_not_held(const char* function, const Stream& stream, Status status);

// Process exit.
void interrupt_all() noexcept;

}  // namespace aclgrad::callbacks

#endif  // ACLGRAD_RUNTIME_CALLBACK_H_
