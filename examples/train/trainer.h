// SPDX-License-Identifier: Apache-2.0
// One training run: the loop, its validation, its checkpoints, its report.
#ifndef ACLGRAD_TRAIN_TRAINER_H_
#define ACLGRAD_TRAIN_TRAINER_H_

#include <functional>

#include "checkpoint.h"
#include "curve.h"
#include "model.h"
#include "optimizer.h"
#include "options.h"
#include "text.h"

namespace aclgrad::train {

class Trainer {
 public:
  Trainer(const Options& options, Operators& operators);

  // Trains, prints, saves. False when a gradient was zero, the goal was asked for and missed, or
  // a checkpoint or the picture could not be written.
  bool run();

  // The pieces, for the check.
  const Text& text() const { return text_; }
  const ModelSize& size() const { return size_; }
  Parameters& parameters() { return parameters_; }
  Model& model() { return model_; }
  Batch batch(uint64_t step) const {
    return text_.training_batch(progress_.seed, step, size_.batch);
  }
  // Forward, backward and update; returns the loss before it. Steps count from 1.
  double step(const Batch& batch, uint64_t number);

 private:
  double validate(size_t batches);
  void print_sample(const char* when);
  void train(Curve& curve);
  void attempt(const std::function<void()>& write);
  void save();
  void print_operators(double seconds) const;
  bool print_result(double loss) const;

  const Options& options_;
  Operators& operators_;
  ModelSize size_;
  Text text_;
  Parameters parameters_;
  Model model_;
  AdamW optimizer_;
  Progress progress_;
  uint64_t empty_groups_ = 0;
  bool failed_ = false;  // to write something
};

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_TRAINER_H_
