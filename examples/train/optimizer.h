// SPDX-License-Identifier: Apache-2.0
// AdamW with a learning rate that rises for kWarmUp steps and then falls with the square root of
// the step: it depends on the step alone, so a run that is continued goes on as if never stopped.
#ifndef ACLGRAD_TRAIN_OPTIMIZER_H_
#define ACLGRAD_TRAIN_OPTIMIZER_H_

#include "parameters.h"
#include "workers.h"

namespace aclgrad::train {

struct AdamW {
  double peak_rate = 3e-3;
  double warm_up = 60;  // steps
  double first_decay = 0.9, second_decay = 0.98, epsilon = 1e-8, weight_decay = 0.01;

  // Of the step with this number, the first being 1.
  double rate(uint64_t step) const;
  void update(Workers& workers, Parameters& parameters, uint64_t step) const;
};

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_OPTIMIZER_H_
