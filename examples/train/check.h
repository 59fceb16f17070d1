// SPDX-License-Identifier: Apache-2.0
// The comparison with PyTorch: this program writes its weights, batches, gradients and losses to a
// folder, and check/check.py computes them anew from the first weights.
#ifndef ACLGRAD_TRAIN_CHECK_H_
#define ACLGRAD_TRAIN_CHECK_H_

#include "trainer.h"

namespace aclgrad::train {

// A text for the check where none is given: the program's own documentation.
const char* check_text();

// Whether everything agrees; throws where the comparison cannot be made.
bool run_check(Trainer& trainer, aclDataType dtype);

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_CHECK_H_
