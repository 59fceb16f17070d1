// SPDX-License-Identifier: Apache-2.0
// A piece of work in a stream's queue, what it may report while it runs, and the queue of a device
// that has one of its own.
#ifndef ACLGRAD_RUNTIME_WORK_H_
#define ACLGRAD_RUNTIME_WORK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/device_record.h"
#include "base/status.h"

namespace aclgrad {

// Where running work leaves what it found wrong in the data (a bad index, for example). The first
// message a task reports is kept; the next synchronise that waits for the task returns it. A
// message begins with the operator's name, as all of them do; empty where there is no memory for
// it.
class DataErrors {
 public:
  virtual void report(std::string message) = 0;

 protected:
  ~DataErrors() = default;
};

class Work;

// A point in a device's queue.
class DevicePoint {
 public:
  virtual ~DevicePoint() = default;
  // When the device passed it, on the clock of the host; it has.
  virtual int64_t nanoseconds() = 0;
  // From here to a later point.
  virtual int64_t nanoseconds_to(DevicePoint& later) = 0;
};

// Holds a device's queue until somebody opens it, once and for good.
class DeviceGate {
 public:
  virtual ~DeviceGate() = default;
  virtual void open() noexcept = 0;
};

// The queue of a device that runs its work by itself: a stream of CUDA. What its functions hand
// over is done in that order. One that answers a status has left a message that begins with
// `function`, and handed over nothing.
class DeviceQueue {
 public:
  // What kernels are launched on: the stream, and the number that its device has there.
  virtual void* native() = 0;
  virtual int32_t native_device() = 0;

  virtual Status copy(const char* function, void* to, const void* from, size_t bytes) = 0;
  virtual Status fill(const char* function, void* to, int32_t value, size_t bytes) = 0;
  // work.run() on some thread of the host.
  virtual Status call(const char* function, Work& work) = 0;
  // A gate that hold() may stand behind the call. Null where the device cannot wait for one: there
  // the call itself has to wait, which holds up the calls of other queues too.
  virtual Status make_gate(const char* function, std::shared_ptr<DeviceGate>& gate) = 0;
  // What is handed over from now on waits for that gate. The queue opens it itself when the call
  // is dropped, and when the process ends.
  virtual Status hold(const char* function) = 0;
  virtual Status record(const char* function, std::shared_ptr<DevicePoint>& point) = 0;
  virtual Status await(const char* function, DevicePoint& point) = 0;
  // What launching a kernel answered.
  virtual Status launched(const char* function, int error) = 0;

  // Memory of the device for what is handed over between the two.
  virtual Status take_scratch(const char* function, size_t bytes, void*& memory) = 0;
  virtual void give_scratch(void* memory) = 0;
  // Memory of the host, zeros, that kernels can write, until the work is destroyed.
  virtual Status take_record(const char* function, DeviceRecord*& record) = 0;

 protected:
  ~DeviceQueue() = default;
};

// Work is queued by its owner pointer, so enqueueing allocates nothing. It is destroyed right after
// it ran, by the thread that ran it (or unrun, when its stream is abandoned at process exit).
class Work {
 public:
  virtual ~Work() = default;
  // Runs in the default floating-point environment. Must not throw.
  virtual void run(DataErrors& errors) noexcept = 0;

  // In place of run() where the device has a queue of its own: hands over what there is to do, on
  // the thread that enqueues. By default that is a call of run().
  virtual Status submit(const char* function, DeviceQueue& queue) {
    return queue.call(function, *this);
  }
  // There, when the device has done it.
  virtual void finish(DataErrors&) noexcept {}
  // Where errors go there that are not the stream's to report.
  virtual DataErrors* own_errors() noexcept { return nullptr; }

  Work* next = nullptr;  // the queue's link
  uint64_t ticket = 0;   // set by the queue: memory freed later is released after this work
};

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_WORK_H_
