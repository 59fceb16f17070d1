// SPDX-License-Identifier: Apache-2.0
// Holds a stream: work queued on it after a Gate was made does not begin before open(). Tests use
// it to do something between phase two and the run.
#ifndef ACLGRAD_TESTS_PROTOCOL_GATE_H_
#define ACLGRAD_TESTS_PROTOCOL_GATE_H_

#include <pthread.h>

#include <atomic>
#include <future>
#include <thread>

#include "support/device.h"

namespace aclgrad::test {

// A callback that blocks holds a stream of its own; `held` waits for an event recorded behind it.
class Gate {
 public:
  explicit Gate(aclrtStream held) {
    use_device();
    require(aclrtCreateStream(&own_), "aclrtCreateStream");
    require(aclrtCreateEvent(&event_), "aclrtCreateEvent");
    std::promise<uint64_t> id;
    reporter_ = std::thread([this, &id] {
      id.set_value(static_cast<uint64_t>(pthread_self()));
      while (!done_) static_cast<void>(aclrtProcessReport(10));
    });
    reporter_id_ = id.get_future().get();
    require(aclrtSubscribeReport(reporter_id_, own_), "aclrtSubscribeReport");
    require(aclrtLaunchCallback(
                [](void* gate) { static_cast<Gate*>(gate)->opened_.get_future().wait(); }, this,
                ACL_CALLBACK_BLOCK, own_),
            "aclrtLaunchCallback");
    require(aclrtRecordEvent(event_, own_), "aclrtRecordEvent");
    require(aclrtStreamWaitEvent(held, event_), "aclrtStreamWaitEvent");
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    if (!open_) open();
    static_cast<void>(aclrtSynchronizeStream(own_));
    static_cast<void>(aclrtUnSubscribeReport(reporter_id_, own_));
    done_ = true;
    reporter_.join();
    static_cast<void>(aclrtDestroyEvent(event_));
    static_cast<void>(aclrtDestroyStream(own_));
  }
  void open() {
    open_ = true;
    opened_.set_value();
  }

 private:
  aclrtStream own_ = nullptr;
  aclrtEvent event_ = nullptr;
  uint64_t reporter_id_ = 0;
  std::promise<void> opened_;
  bool open_ = false;
  std::atomic<bool> done_{false};
  std::thread reporter_;
};

// A stream with an owner.
class OwnStream {
 public:
  OwnStream() {
    use_device();
    require(aclrtCreateStream(&stream_), "aclrtCreateStream");
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() {
    if (stream_ != nullptr) static_cast<void>(aclrtDestroyStream(stream_));
  }
  aclrtStream get() const { return stream_; }
  aclError destroy() { return aclrtDestroyStream(std::exchange(stream_, nullptr)); }

 private:
  aclrtStream stream_ = nullptr;
};

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_PROTOCOL_GATE_H_
