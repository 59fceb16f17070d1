// SPDX-License-Identifier: Apache-2.0
// A piece of work in a stream's queue, and what it may report while it runs.
#ifndef ACLGRAD_RUNTIME_WORK_H_
#define ACLGRAD_RUNTIME_WORK_H_

#include <cstdint>
#include <string>

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

// Work is queued by its owner pointer, so enqueueing allocates nothing. It is destroyed right after
// it ran, by the thread that ran it (or unrun, when its stream is abandoned at process exit).
class Work {
 public:
  virtual ~Work() = default;
  // Runs in the default floating-point environment. Must not throw.
  virtual void run(DataErrors& errors) noexcept = 0;

  Work* next = nullptr;  // the queue's link
  uint64_t ticket = 0;   // set by the queue: memory freed later is released after this work
};

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_WORK_H_
