// SPDX-License-Identifier: Apache-2.0
#include "runtime/callback.h"

#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "runtime/process.h"

namespace aclgrad {

namespace callbacks {
namespace {
class Mailbox;
}
}  // namespace callbacks

// One stream's subscription by one thread.
class Subscription {
 public:
  std::shared_ptr<callbacks::Mailbox> mailbox;
  uint64_t thread = 0;
  bool ended = false;  // guarded by the mailbox's mutex
};

namespace callbacks {
namespace {

struct Report {
  aclrtCallback callback = nullptr;
  void* data = nullptr;
  const Stream* held = nullptr;  // the stream that waits for it, or null
  bool started = false;
  bool done = false;
  bool withdrawn = false;
  std::shared_ptr<DeviceGate> gate;  // in whose place nobody waits for `done`
  std::shared_ptr<Subscription> subscription;
};

void let_go(const Report& report) {
  if (report.gate != nullptr) report.gate->open();
}

// A list, so that a report comes into a mailbox without memory that might not be there.
using Reports = std::list<std::shared_ptr<Report>>;

// What the streams of one thread have for it.
class Mailbox {
 public:
  std::mutex mutex;
  std::condition_variable changed;
  Reports reports;
  size_t subscriptions = 0;
};

constinit std::mutex mailboxes_mutex;
std::map<uint64_t, std::shared_ptr<Mailbox>>& mailboxes() {
  static auto* const kMap = new std::map<uint64_t, std::shared_ptr<Mailbox>>;
  return *kMap;
}

constinit thread_local const Stream* held_here = nullptr;

class CallbackWork final : public Work {
 public:
  CallbackWork(const std::shared_ptr<Report>& report, bool block)
      : report_(report), posted_{report}, block_(block) {}

  void run(DataErrors&) noexcept override {
    const Subscription& subscription = *report_->subscription;
    Mailbox& mailbox = *subscription.mailbox;
    std::unique_lock lock(mailbox.mutex);
    if (subscription.ended || report_->withdrawn) {
      let_go(*report_);
      return;
    }
    mailbox.reports.splice(mailbox.reports.end(), posted_);
    mailbox.changed.notify_all();
    if (!block_ || report_->gate != nullptr) return;
    mailbox.changed.wait(lock, [&] {
      return report_->done || (subscription.ended && !report_->started) || process::exiting();
    });
  }

  Status submit(const char* function, DeviceQueue& queue) override {
    if (block_) {
      if (const Status status = queue.make_gate(function, report_->gate)) return status;
    }
    if (const Status status = queue.call(function, *this)) return status;
    if (report_->gate == nullptr) return kOk;
    const Status status = queue.hold(function);
    if (status != kOk) withdraw();
    return status;
  }

 private:
  // Of a launch that was refused: nobody hears of it.
  void withdraw() {
    Mailbox& mailbox = *report_->subscription->mailbox;
    const std::lock_guard lock(mailbox.mutex);
    report_->withdrawn = true;
    std::erase(mailbox.reports, report_);
  }

  std::shared_ptr<Report> report_;
  Reports posted_;  // it again, until it goes to the mailbox
  bool block_;
};

// Runs one report outside the lock; marks it done whatever the callback does.
class Running {
 public:
  Running(std::unique_lock<std::mutex>& lock, Mailbox& mailbox, Report& report)
      : lock_(lock), mailbox_(mailbox), report_(report), outer_(held_here) {
    report_.started = true;
    held_here = report_.held;
    lock_.unlock();
  }
  ~Running() {
    lock_.lock();
    held_here = outer_;
    report_.done = true;
    let_go(report_);
    mailbox_.changed.notify_all();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::unique_lock<std::mutex>& lock_;
  Mailbox& mailbox_;
  Report& report_;
  const Stream* outer_;
};

Status not_subscribed(const char* function, uint64_t thread) {
  return fail(ACL_ERROR_RT_THREAD_SUBSCRIBE,
              "%s: this thread (%llu) is not subscribed to any stream; expected "
              "aclrtSubscribeReport with its number before",
              function, static_cast<unsigned long long>(thread));
}

std::shared_ptr<Mailbox> find_mailbox(uint64_t thread) {
  const std::lock_guard lock(mailboxes_mutex);
  const auto found = mailboxes().find(thread);
  return found == mailboxes().end() ? nullptr : found->second;
}

// A mailbox that is subscribed to no more and empty is forgotten.
void forget_if_unused(uint64_t thread) noexcept {
  const std::lock_guard lock(mailboxes_mutex);
  const auto found = mailboxes().find(thread);
  if (found == mailboxes().end()) return;
  const std::shared_ptr<Mailbox> mailbox = found->second;
  const std::lock_guard mailbox_lock(mailbox->mutex);
  if (mailbox->subscriptions == 0 && mailbox->reports.empty()) mailboxes().erase(found);
}

// Waits until there is a report, nothing can come any more, or the time is over.
void await_report(std::unique_lock<std::mutex>& lock, Mailbox& mailbox, const Deadline& deadline) {
  const auto ready = [&] {
    return !mailbox.reports.empty() || mailbox.subscriptions == 0 || process::exiting();
  };
  if (deadline.finite()) {
    mailbox.changed.wait_until(lock, deadline.at(), ready);
  } else {
    mailbox.changed.wait(lock, ready);
  }
}

}  // namespace

Status subscribe(const char* function, uint64_t thread, StreamObject& stream) {
  const std::lock_guard lock(mailboxes_mutex);
  if (stream.subscription != nullptr) {
    return fail(ACL_ERROR_RT_STREAM_SUBSCRIBE,
                "%s: the stream is subscribed by thread %llu already, expected one that is not",
                function, static_cast<unsigned long long>(stream.subscription->thread));
  }
  auto subscription = std::make_shared<Subscription>();
  std::shared_ptr<Mailbox>& mailbox = mailboxes()[thread];
  if (mailbox == nullptr) mailbox = std::make_shared<Mailbox>();
  subscription->mailbox = mailbox;
  subscription->thread = thread;
  const std::lock_guard mailbox_lock(mailbox->mutex);
  ++mailbox->subscriptions;
  stream.subscription = std::move(subscription);
  return kOk;
}

Status unsubscribe(const char* function, uint64_t thread, StreamObject& stream) {
  std::shared_ptr<Subscription> subscription;
  {
    const std::lock_guard lock(mailboxes_mutex);
    if (stream.subscription == nullptr) {
      return fail(ACL_ERROR_RT_STREAM_NO_CB_REG,
                  "%s: nobody is subscribed to the stream; expected aclrtSubscribeReport before",
                  function);
    }
    if (stream.subscription->thread != thread) {
      return fail(ACL_ERROR_RT_THREAD_SUBSCRIBE,
                  "%s: threadId is %llu, expected the subscribed thread's %llu", function,
                  static_cast<unsigned long long>(thread),
                  static_cast<unsigned long long>(stream.subscription->thread));
    }
    subscription = std::move(stream.subscription);
  }
  end(subscription);
  return kOk;
}

Status launch(const char* function, aclrtCallback callback, void* data, bool block,
              StreamObject& stream) {
  auto report = std::make_shared<Report>();
  report->callback = callback;
  report->data = data;
  report->held = block ? stream.stream.get() : nullptr;
  {
    const std::lock_guard lock(mailboxes_mutex);
    report->subscription = stream.subscription;
  }
  if (report->subscription == nullptr) {
    return fail(ACL_ERROR_RT_STREAM_NO_CB_REG,
                "%s: nobody is subscribed to the stream; expected aclrtSubscribeReport before",
                function);
  }
  if (stream.stream->enqueue(function, new CallbackWork(report, block)) != 0) return kOk;
  return stream.stream->refusal(function, ACL_ERROR_RT_STREAM_CONTEXT);
}

Status process(const char* function, uint64_t thread, int32_t timeout) {
  const std::shared_ptr<Mailbox> mailbox = find_mailbox(thread);
  if (mailbox == nullptr) return not_subscribed(function, thread);
  size_t done = 0;
  bool subscribed = true;
  {
    std::unique_lock lock(mailbox->mutex);
    await_report(lock, *mailbox, Deadline::in_milliseconds(timeout));
    for (size_t count = mailbox->reports.size(); count > 0 && !mailbox->reports.empty(); --count) {
      const std::shared_ptr<Report> report = std::move(mailbox->reports.front());
      mailbox->reports.pop_front();
      const Running running(lock, *mailbox, *report);
      report->callback(report->data);
      ++done;
    }
    subscribed = mailbox->subscriptions > 0;
  }
  if (!subscribed) forget_if_unused(thread);
  if (done > 0) return kOk;
  if (!subscribed) return not_subscribed(function, thread);
  return fail(ACL_ERROR_RT_REPORT_TIMEOUT, "%s: no callback came within timeout, %d ms", function,
              timeout);
}

std::shared_ptr<Subscription> detach(StreamObject& stream) noexcept {
  const std::lock_guard lock(mailboxes_mutex);
  return std::move(stream.subscription);
}

void end(const std::shared_ptr<Subscription>& subscription) noexcept {
  if (subscription == nullptr) return;
  Mailbox& mailbox = *subscription->mailbox;
  {
    const std::lock_guard lock(mailbox.mutex);
    subscription->ended = true;
    --mailbox.subscriptions;
    // What has not begun will not: the system gives the thread's number to other threads later.
    std::erase_if(mailbox.reports, [&](const std::shared_ptr<Report>& report) {
      const bool ends = report->subscription == subscription;
      if (ends) let_go(*report);
      return ends;
    });
    mailbox.changed.notify_all();
  }
  forget_if_unused(subscription->thread);
}

Status check_not_held(const char* function, const Stream& stream, Status status) {
  if (held_here != &stream) return kOk;
  return fail(status,
              "%s: called in a blocking callback of a stream that it waits for, it would wait for "
              "itself",
              function);
}

void interrupt_all() noexcept {
  const std::lock_guard lock(mailboxes_mutex);
  for (auto& [thread, mailbox] : mailboxes()) {
    const std::lock_guard mailbox_lock(mailbox->mutex);
    mailbox->changed.notify_all();
  }
}

}  // namespace callbacks
}  // namespace aclgrad
