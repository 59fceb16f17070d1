// SPDX-License-Identifier: Apache-2.0
// What both phases check about addresses: that every byte a view reaches lies inside the allocation
// its address lies in, that outputs share no byte with anything else, and that the workspace is
// where and as large as it was planned.
#ifndef ACLGRAD_TENSOR_ADDRESSES_H_
#define ACLGRAD_TENSOR_ADDRESSES_H_

#include "tensor/launch_state.h"

namespace aclgrad {

// `bases`: the storage's base of each touched operand; null where it is not known yet. `changes`:
// aclgrad_allocation_changes() from before, asked once for all checks, because beside a thread that
// allocates every answer is a line from its core (0.1 us).
Status check_ranges(const LaunchState& state, const Addresses& bases, uint64_t changes);

// Sets in `copies` the outputs that have to be computed apart because it could not be told cheaply
// whether they overlap something.
Status check_overlaps(const LaunchState& state, const Addresses& bases, uint32_t& copies);

// The planned bytes from `workspace` on; the plan wants at least one.
Status check_workspace(const LaunchState& state, const Addresses& bases, const void* workspace,
                       uint64_t changes);

// Where there are several GPUs: all that the stream's one is to use is in its reach.
Status check_reach(const LaunchState& state, const Addresses& bases, const void* workspace,
                   aclrtStream stream);

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_ADDRESSES_H_
