// SPDX-License-Identifier: Apache-2.0
#include "trainer.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <numbers>

#include "output_file.h"
#include "progress.h"
#include "sampling.h"

namespace aclgrad::train {
namespace {

constexpr double kGoal = 0.95;         // of the bigram entropy
constexpr size_t kFinalBatches = 16;   // of held-out text, at the end
constexpr size_t kQuickBatches = 2;    // on the way
constexpr uint64_t kValidations = 10;  // on the way
constexpr size_t kPrompt = 24;         // bytes

unsigned long long integer(uint64_t value) { return value; }

}  // namespace

Trainer::Trainer(const Options& options, Operators& operators)
    : options_(options),
      operators_(operators),
      size_(model_size(options.size)),
      text_(options.text, size_.context),
      parameters_(size_, operators.dtype()),
      model_(operators, parameters_, size_, size_.batch) {
  progress_.seed = options.seed;
  if (!options.load.empty()) {
    progress_ = load_checkpoint(options.load, size_, operators.dtype(), parameters_);
    if (progress_.text != text_.hash()) {
      std::fprintf(stderr,
                   "train: warning: the checkpoint %s was trained on another text than %s\n",
                   options.load.c_str(), options.text.c_str());
    }
  } else {
    parameters_.start(progress_.seed);
  }
  progress_.text = text_.hash();
  parameters_.refresh(operators_.workers());
}

double Trainer::step(const Batch& batch, uint64_t number) {
  model_.forward(batch.bytes.data(), batch.sequence_ends);
  const double loss = model_.loss(batch.targets.data());
  model_.backward();
  operators_.end_step(number);
  optimizer_.update(operators_.workers(), parameters_, number);
  parameters_.refresh(operators_.workers());
  empty_groups_ += model_.empty_groups();
  return loss;
}

double Trainer::validate(size_t batches) {
  double sum = 0;
  for (size_t i = 0; i < batches; ++i) {
    const Batch batch = text_.held_out_batch(i, batches, size_.batch);
    model_.forward(batch.bytes.data(), batch.sequence_ends);
    sum += model_.loss(batch.targets.data());
  }
  return sum / static_cast<double>(batches);
}

void Trainer::print_sample(const char* when) {
  if (options_.sample == 0) return;
  Model one_row(operators_, parameters_, size_, 1);
  const auto begin = text_.bytes().begin() + static_cast<std::ptrdiff_t>(text_.training_size());
  const std::string prompt(begin, begin + kPrompt);
  const std::string sampled =
      sample(one_row, size_, text_, prompt, options_.sample, progress_.seed);
  std::printf("\n--- sample %s training, after \"%s\"\n%s\n---\n\n", when,
              printable(prompt).c_str(), printable(sampled.substr(kPrompt)).c_str());
  std::fflush(stdout);
}

// A disk that is full does not cost what has been trained, nor its report.
void Trainer::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const std::exception& error) {
    failed_ = true;
    std::fflush(stdout);
    // The bar may stand on the line.
    const char* line = isatty(STDERR_FILENO) != 0 ? "\n" : "";
    std::fprintf(stderr, "%strain: after step %llu: %s\n", line, integer(progress_.step),
                 error.what());
  }
}

void Trainer::save() {
  if (options_.save.empty()) return;
  attempt([this] {
    save_checkpoint(options_.save, size_, operators_.dtype(), progress_, parameters_);
  });
}

void Trainer::train(Curve& curve) {
  const uint64_t first = progress_.step, steps = options_.steps;
  ProgressBar bar(first, steps, model_.tokens());
  const uint64_t between = std::max<uint64_t>((steps - first) / kValidations, 1);
  while (progress_.step < steps) {
    const double loss = step(batch(progress_.step), progress_.step + 1);
    ++progress_.step;
    if (!std::isfinite(loss)) {
      throw std::runtime_error("the loss is not finite at step " + std::to_string(progress_.step));
    }
    curve.training.push_back({progress_.step, loss});
    bar.show(progress_.step, loss);
    if ((progress_.step - first) % between == 0 && progress_.step != steps) {
      curve.validation.push_back({progress_.step, validate(kQuickBatches)});
    }
    const bool periodic = options_.save_every > 0 && progress_.step % options_.save_every == 0;
    if (periodic && progress_.step != steps) save();
  }
  print_operators(bar.seconds());
}

void Trainer::print_operators(double seconds) const {
  const double trained = static_cast<double>(model_.tokens()) *
                         static_cast<double>(operators_.statistics()[kFirstGradient].calls) /
                         static_cast<double>(2 * size_.blocks + 1);
  std::printf("\n%.1f s, %.0f tokens/s; %.1f %% of the time in the operators\n", seconds,
              trained / seconds, 100 * operators_.seconds() / seconds);
  std::printf("%-34s %7s %9s %7s %12s %14s\n", "operator", "calls", "seconds", "share",
              "norm, last", "norm, smallest");
  for (size_t i = 0; i < kOperators; ++i) {
    const Statistics& s = operators_.statistics()[i];
    std::printf("%-34s %7zu %9.2f %5.1f %%", s.name, s.calls, s.seconds, 100 * s.seconds / seconds);
    if (i >= kFirstGradient) std::printf(" %12.4g %14.4g", s.norm, s.smallest.value_or(s.norm));
    std::printf("\n");
  }
  std::printf(
      "norm: of all that a gradient put out in a step, the last and the smallest after the "
      "first;\n%llu groups of GroupedBiasAddGrad were empty\n",
      integer(empty_groups_));
}

bool Trainer::print_result(double loss) const {
  const double goal = kGoal * text_.bigram_entropy();
  const auto bits = [](double nats) { return nats / std::numbers::ln2; };
  std::printf("\nnats (bits) a byte:\n");
  std::printf("  unigram entropy  %.4f (%.4f)\n", text_.unigram_entropy(),
              bits(text_.unigram_entropy()));
  std::printf("  bigram entropy   %.4f (%.4f)\n", text_.bigram_entropy(),
              bits(text_.bigram_entropy()));
  std::printf("  validation loss  %.4f (%.4f), %.3f of the bigram entropy; goal %.4f: %s\n", loss,
              bits(loss), loss / text_.bigram_entropy(), goal,
              loss <= goal ? "reached" : "not reached");
  std::printf("weights after step %llu: hash %s\n", integer(progress_.step),
              parameters_.hash().c_str());
  bool all = true;
  for (const Statistics& each : operators_.statistics()) {
    if (each.failed == 0) continue;
    all = false;
    std::fflush(stdout);
    std::fprintf(stderr, "train: %s gave a zero or infinite gradient, first at step %llu\n",
                 each.name, integer(each.failed));
  }
  return all && (loss <= goal || !options_.goal);
}

bool Trainer::run() {
  // What cannot be written is better known before the training than after it.
  if (!options_.save.empty()) expect_writable(options_.save);
  if (!options_.curve.empty()) expect_writable(options_.curve);
  std::printf("%s: %zu bytes, %zu of them held out\n", options_.text.c_str(), text_.bytes().size(),
              text_.held_out_size());
  std::printf("%s; %zu parameters, %s\n", describe(size_).c_str(), parameters_.total(),
              operators_.dtype() == ACL_BF16 ? "BF16 with FP32 master weights" : "FP32");
  if (progress_.step > 0) std::printf("continued from step %llu\n", integer(progress_.step));
  if (progress_.step > options_.steps) {
    std::printf("nothing to train: --steps %llu is behind that\n", integer(options_.steps));
  }
  print_sample("before");
  Curve curve;
  curve.unigram = text_.unigram_entropy();
  curve.bigram = text_.bigram_entropy();
  curve.goal = kGoal * curve.bigram;
  curve.validation.push_back({progress_.step, validate(kQuickBatches)});
  operators_.forget();
  train(curve);
  save();
  const double loss = validate(kFinalBatches);
  curve.validation.push_back({progress_.step, loss});
  print_sample("after");
  const bool good = print_result(loss);
  if (!options_.curve.empty()) {
    attempt([&] {
      draw_curve(options_.curve, curve);
      std::printf("loss curve: %s\n", options_.curve.c_str());
    });
  }
  return good && !failed_;
}

}  // namespace aclgrad::train
