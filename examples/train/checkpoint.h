// SPDX-License-Identifier: Apache-2.0
// A run on disk: sizes, step, seed, weights, moments. Written under a temporary name and renamed
// when all of it is on the disk, so that a failure leaves the last good one.
#ifndef ACLGRAD_TRAIN_CHECKPOINT_H_
#define ACLGRAD_TRAIN_CHECKPOINT_H_

#include <string>

#include "parameters.h"

namespace aclgrad::train {

struct Progress {
  uint64_t seed = 1;
  uint64_t step = 0;  // steps done
};

// Throws where a checkpoint at `path` could not even be begun.
void expect_writable(const std::string& path);

// Throws std::runtime_error that names what went wrong; what was at `path` before is still there.
void save_checkpoint(const std::string& path, const ModelSize& size, aclDataType dtype,
                     const Progress& progress, Parameters& parameters);

// Throws std::runtime_error when the file is missing, cut off, damaged, no checkpoint, or one of
// another size or dtype; the parameters are then as before.
Progress load_checkpoint(const std::string& path, const ModelSize& size, aclDataType dtype,
                         Parameters& parameters);

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_CHECKPOINT_H_
