// SPDX-License-Identifier: Apache-2.0
#include "runtime/data_errors.h"

#include <algorithm>
#include <new>
#include <utility>

namespace aclgrad {
namespace {

std::atomic<uint64_t> errors_found{0};

std::shared_ptr<DataError> make_data_error(std::string message) {
  auto error = std::make_shared<DataError>();
  error->message = std::move(message);
  error->order = errors_found.fetch_add(1, std::memory_order_relaxed);
  return error;
}

bool is_reported(const KeptError& kept) {
  return kept.error->reported.load(std::memory_order_relaxed);
}

}  // namespace

void StreamErrors::push(uint64_t sequence, std::shared_ptr<DataError> error) {
  std::erase_if(list_, is_reported);
  list_.push_back({sequence, std::move(error)});
  any_.store(true, std::memory_order_relaxed);
}

void StreamErrors::keep(uint64_t sequence, TaskErrors& errors) noexcept {
  try {
    push(sequence, make_data_error(errors.take()));
  } catch (const std::bad_alloc&) {
    lost_ = true;
    any_.store(true, std::memory_order_relaxed);
  }
}

void StreamErrors::adopt(uint64_t sequence, DataErrorList errors) noexcept {
  try {
    for (KeptError& kept : errors) push(sequence, std::move(kept.error));
  } catch (const std::bad_alloc&) {
  }
}

DataErrorList StreamErrors::take(uint64_t sequence) {
  DataErrorList taken;
  if (lost_) {  // first, because it needs memory
    taken.push_back(
        {0, make_data_error("a task found an error in its data; no memory for its text")});
    lost_ = false;
  }
  const auto end = std::find_if(list_.begin(), list_.end(),
                                [&](const KeptError& kept) { return kept.sequence > sequence; });
  taken.splice(taken.end(), list_, list_.begin(), end);
  if (list_.empty()) any_.store(false, std::memory_order_relaxed);
  return taken;
}

DataErrorList StreamErrors::copy(uint64_t sequence) const {
  DataErrorList copies;
  for (const KeptError& kept : list_) {
    if (kept.sequence <= sequence && !is_reported(kept)) copies.push_back(kept);
  }
  return copies;
}

Status report_errors(const char* function, DataErrorList errors) {
  std::erase_if(errors, [](const KeptError& kept) {
    return kept.error->reported.exchange(true, std::memory_order_acq_rel);
  });
  if (errors.empty()) return kOk;
  const auto first = std::min_element(
      errors.begin(), errors.end(),
      [](const KeptError& a, const KeptError& b) { return a.error->order < b.error->order; });
  const char* message = first->error->message.c_str();
  const size_t others = errors.size() - 1;
  if (others == 0) {
    return fail(ACL_ERROR_RT_AICORE_EXCEPTION, "%s: %s", function, message);
  }
  return fail(ACL_ERROR_RT_AICORE_EXCEPTION, "%s: %s (and %zu more task%s reported errors)",
              function, message, others, others == 1 ? "" : "s");
}

}  // namespace aclgrad
