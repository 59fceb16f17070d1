// SPDX-License-Identifier: Apache-2.0
#include "runtime/data_errors.h"

#include <algorithm>
#include <utility>

namespace aclgrad {
namespace {

std::atomic<uint64_t> errors_found{0};

}  // namespace

std::shared_ptr<DataError> make_data_error(std::string message) {
  auto error = std::make_shared<DataError>();
  error->message = std::move(message);
  error->order = errors_found.fetch_add(1, std::memory_order_relaxed);
  return error;
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
