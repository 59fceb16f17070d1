// SPDX-License-Identifier: Apache-2.0
// What running work found wrong in the data, until a synchronise reports it. One error may be known
// to several streams (one that waited for the other); whoever takes it first reports it.
#ifndef ACLGRAD_RUNTIME_DATA_ERRORS_H_
#define ACLGRAD_RUNTIME_DATA_ERRORS_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "runtime/work.h"

namespace aclgrad {

struct DataError {
  std::string message;
  uint64_t order = 0;  // over all streams, in the order the errors were found
  std::atomic<bool> reported{false};
};

// The error that the work of a number in a stream's order found.
struct KeptError {
  uint64_t sequence;
  std::shared_ptr<DataError> error;
};
// A list, whose elements change hands without memory: there may be none when a stream goes.
using DataErrorList = std::list<KeptError>;

// Collects the first message of one task, from any of the threads that compute it.
class TaskErrors final : public DataErrors {
 public:
  void report(std::string message) override {
    const std::lock_guard lock(mutex_);
    if (!any_.load(std::memory_order_relaxed)) message_ = std::move(message);
    any_.store(true, std::memory_order_release);
  }
  bool any() const { return any_.load(std::memory_order_acquire); }
  std::string take() { return std::move(message_); }

 private:
  std::mutex mutex_;
  std::atomic<bool> any_{false};
  std::string message_;
};

// The errors of one stream, sequences ascending: under the stream's lock, all but any().
class StreamErrors {
 public:
  // False: there are none. It spares a clean synchronise the lock.
  bool any() const noexcept { return any_.load(std::memory_order_relaxed); }
  void keep(uint64_t sequence, TaskErrors& errors) noexcept;
  // Those of another stream. Where there is no memory for them that stream still reports them.
  void adopt(uint64_t sequence, DataErrorList errors) noexcept;
  // Of work up to `sequence`; the second leaves them, and leaves out what is reported.
  DataErrorList take(uint64_t sequence);
  DataErrorList copy(uint64_t sequence) const;

 private:
  void push(uint64_t sequence, std::shared_ptr<DataError> error);

  DataErrorList list_;
  std::atomic<bool> any_{false};
  bool lost_ = false;  // there was no memory for an error's text
};

// 0 when none of the errors is unreported; else marks them reported and refuses with 507015, the
// first one's message and the number of the others.
Status report_errors(const char* function, DataErrorList errors);

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_DATA_ERRORS_H_
