// SPDX-License-Identifier: Apache-2.0
// How far ahead the memory is asked for what is visited soon.
#ifndef ACLGRAD_OPS_LAYER_NORM_AHEAD_H_
#define ACLGRAD_OPS_LAYER_NORM_AHEAD_H_

#include <cstdint>

namespace aclgrad::layer_norm {

// Bytes by which the next rows are asked for before they are summed. Two pages and more: 4 KiB
// leave a third of the time to waiting (one Zen 4 core, f32 32768x768: 22 cycles a vector without,
// 17 with 4 KiB, 15 with 8 KiB).
inline constexpr intptr_t kAhead = intptr_t{8} << 10;

// Bytes by which the row to come is called from L2 to L1 where prefetches are dropped, and where
// loads are parts of two lines (Zen 4, f32 8192x4096, row by row, ms, one core and two: 11.5 and
// 6.9 without, 9.8 and 5.9 so).
inline constexpr intptr_t kAheadToL1 = 2048;

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_AHEAD_H_
