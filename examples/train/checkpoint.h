// SPDX-License-Identifier: Apache-2.0
// A run on disk: sizes, step, seed, the text's hash, weights, moments. A failure to write one
// leaves the last good one.
#ifndef ACLGRAD_TRAIN_CHECKPOINT_H_
#define ACLGRAD_TRAIN_CHECKPOINT_H_

#include <string>

#include "parameters.h"

namespace aclgrad::train {

struct Progress {
  uint64_t seed = 1;
  uint64_t step = 0;  // steps done
  uint64_t text = 0;  // hash of the text
};

// Throws std::runtime_error that names what went wrong; what was at `path` before is still there.
void save_checkpoint(const std::string& path, const ModelSize& size, aclDataType dtype,
                     const Progress& progress, Parameters& parameters);

// Throws std::runtime_error when the file is missing, cut off, damaged, no checkpoint, or one of
// another size or dtype; the parameters are then as before.
Progress load_checkpoint(const std::string& path, const ModelSize& size, aclDataType dtype,
                         Parameters& parameters);

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_CHECKPOINT_H_
