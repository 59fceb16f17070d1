// SPDX-License-Identifier: Apache-2.0
// The two-phase calls. A Call is one call with its arguments in place: phase one runs when it is
// made, phase two at each run. Operators runs calls on the stream, one workspace for all of them,
// and keeps the books: time, and the norms of what the gradient operators put out.
#ifndef ACLGRAD_TRAIN_OPERATORS_H_
#define ACLGRAD_TRAIN_OPERATORS_H_

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "device.h"
#include "workers.h"

namespace aclgrad::train {

enum class Operator : size_t {
  layer_norm,
  embedding,
  scaled_masked_softmax,
  nsa_compress,
  layer_norm_backward,
  embedding_dense_backward,
  scaled_masked_softmax_backward,
  grouped_bias_add_grad,
  nsa_compress_grad,
};
inline constexpr size_t kOperators = 9;
inline constexpr size_t kFirstGradient = 4;  // from here on they are gradients

struct Statistics {
  const char* name = "";
  size_t calls = 0;
  double seconds = 0;
  // Of gradients: the norm of all outputs of the latest step, and the smallest of any step but the
  // first.
  double norm = 0;
  std::optional<double> smallest;
  // The first step, the very first aside, at which it was zero or not finite; 0: none.
  uint64_t failed = 0;
};

using PhaseOne = std::function<aclnnStatus(uint64_t*, aclOpExecutor**)>;
using PhaseTwo = aclnnStatus (*)(void*, uint64_t, aclOpExecutor*, aclrtStream);

enum class Use { once, repeatedly };

class Call {
 public:
  Call(Operator which, Use use, const PhaseOne& one, PhaseTwo two);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

 private:
  friend class Operators;
  Operator which_;
  Use use_;
  PhaseTwo two_;
  uint64_t workspace_ = 0;
  aclOpExecutor* executor_ = nullptr;
  double planning_ = 0;  // seconds of a phase one that belongs to a single run
};

// Values in FP32 as an operator sees them: in place, or through a rounded copy in BF16.
class Port {
 public:
  Port(Workers& workers, const Dims& dims, aclDataType dtype, float* values);
  aclTensor* tensor() const { return tensor_->get(); }
  void load();         // before the operator reads
  void store() const;  // after it has written
  const float* values() const { return values_; }
  size_t size() const { return size_; }

 private:
  Workers* workers_;
  float* values_;
  size_t size_;
  Array<uint16_t> rounded_;
  std::optional<Tensor> tensor_;
};

class Operators {
 public:
  Operators(const Device& device, Workers& workers, aclDataType dtype)
      : device_(device), workers_(workers), dtype_(dtype) {}

  aclDataType dtype() const { return dtype_; }
  Workers& workers() { return workers_; }

  // Phase two, and waits. The call's outputs are there afterwards.
  void run(Call& call);
  // Loads the inputs, runs, stores the outputs. Outputs of gradients enter the norm.
  void run(Call& call, std::initializer_list<Port*> inputs, std::initializer_list<Port*> outputs);
  // Adds an output of a gradient to the step's norm.
  void add_to_norm(Operator which, const float* values, size_t size);

  // Ends training step `number`: norms are squares summed since the last end.
  void end_step(uint64_t number);
  const std::array<Statistics, kOperators>& statistics() const { return statistics_; }
  double seconds() const;
  void forget();  // sets time and norms back

 private:
  static std::array<Statistics, kOperators> names();
  const Device& device_;
  Workers& workers_;
  aclDataType dtype_;
  Array<char> workspace_;
  std::array<Statistics, kOperators> statistics_ = names();
  std::array<double, kOperators> squares_ = {};
  size_t steps_ = 0;
};

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_OPERATORS_H_
