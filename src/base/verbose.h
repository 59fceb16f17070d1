// SPDX-License-Identifier: Apache-2.0
// The only place that writes to stderr: the verbose line of an executed operator, on request, and a
// wrong value of an environment variable, once each.
#ifndef ACLGRAD_BASE_VERBOSE_H_
#define ACLGRAD_BASE_VERBOSE_H_

namespace aclgrad {

extern "C" {
// True when ACLGRAD_VERBOSE=1.
[[gnu::visibility("default")]] bool aclgrad_verbose() noexcept;
// Writes one line to stderr in one piece.
[[gnu::visibility("default")]] void aclgrad_print_line(const char* text) noexcept;
// "aclgrad: ACLGRAD_THREADS=abc ignored; expected ..." on stderr, once for each variable.
[[gnu::visibility("default")]] void aclgrad_reject_knob(const char* variable, const char* value,
                                                        const char* expected) noexcept;
}

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_VERBOSE_H_
