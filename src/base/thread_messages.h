// SPDX-License-Identifier: Apache-2.0
// The reading side of the per-thread message slot, for the functions that hand it to programs.
#ifndef ACLGRAD_BASE_THREAD_MESSAGES_H_
#define ACLGRAD_BASE_THREAD_MESSAGES_H_

#include "base/status.h"

namespace aclgrad {

// This thread's messages, newest first, one a line; null when there is none. Empties the slot. The
// text stays valid until the thread takes messages again.
const char* take_messages() noexcept;

// The code of the last failed acl call of this thread (aclnn codes are not kept); 0 when none
// failed since the last reset.
Status last_error() noexcept;
void reset_last_error() noexcept;

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_THREAD_MESSAGES_H_
