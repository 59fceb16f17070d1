// SPDX-License-Identifier: Apache-2.0
// Text by the model, a byte at a time.
#ifndef ACLGRAD_TRAIN_SAMPLING_H_
#define ACLGRAD_TRAIN_SAMPLING_H_

#include <string>

#include "model.h"
#include "text.h"

namespace aclgrad::train {

// The prompt and `count` bytes after it, drawn with the seed; `model` has a batch of one row.
std::string sample(Model& model, const ModelSize& size, const Text& text, const std::string& prompt,
                   size_t count, uint64_t seed);

// Bytes that no terminal shows, and those that are no UTF-8, as question marks.
std::string printable(const std::string& bytes);

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_SAMPLING_H_
