// SPDX-License-Identifier: Apache-2.0
// A small valid call of each operator function, all in one table: what holds for every operator is
// tested on every row of it.
#ifndef ACLGRAD_TESTS_PROTOCOL_SMALL_PROBLEMS_H_
#define ACLGRAD_TESTS_PROTOCOL_SMALL_PROBLEMS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {

// A tensor parameter of an operator, in the order of its signature.
struct Parameter {
  std::string name;
  bool output = false;
  bool optional = false;
  bool untouched = false;  // checked, never read: the bias of LayerNormBackward
};

using Handles = std::vector<const aclTensor*>;

struct SmallProblem {
  std::string function;  // "aclnnLayerNormBackward"
  std::string folder;    // "layer_norm_backward"
  std::vector<Parameter> parameters;
  std::vector<std::shared_ptr<Tensor>> tensors;  // one for each parameter
  std::vector<std::shared_ptr<void>> arrays;     // whatever else the plan needs alive
  // Phase one with these handles in place of the tensors' own.
  std::function<aclnnStatus(const Handles&, uint64_t*, aclOpExecutor**)> plan_with;
  Execute execute = nullptr;

  Handles handles() const {
    Handles out;
    for (const auto& tensor : tensors) out.push_back(tensor->handle());
    return out;
  }
  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) const {
    return plan_with(handles(), size, executor);
  }
  // The outputs' bits, one after the other.
  std::vector<uint8_t> result() const {
    std::vector<uint8_t> out;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!parameters[i].output) continue;
      const std::vector<uint8_t> bits = tensors[i]->bits();
      out.insert(out.end(), bits.begin(), bits.end());
    }
    return out;
  }
  bool outputs_untouched() const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (parameters[i].output && !tensors[i]->untouched()) return false;
    }
    return true;
  }
  bool guards_intact() const {
    for (const auto& tensor : tensors) {
      if (!tensor->untouched_outside()) return false;
    }
    return true;
  }
  void poison_outputs() const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (parameters[i].output) tensors[i]->poison();
    }
  }
  // Index of the first output.
  size_t first_output() const {
    size_t i = 0;
    while (!parameters[i].output) ++i;
    return i;
  }
};

inline constexpr size_t kSmallProblems = 11;

// The row'th problem, its floating tensors in that arrangement. The same numbers every time for the
// same seed. Inner-strided tensors are packed, so the plan then needs workspace.
SmallProblem make_small_problem(size_t row, Arrangement arrangement = Arrangement::kContiguous,
                                uint64_t seed = 1);

// "LayerNormBackward", for the names of parameterised tests.
std::string small_problem_name(size_t row);

// What a correct run writes.
std::vector<uint8_t> expected_result(size_t row, uint64_t seed = 1);

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_PROTOCOL_SMALL_PROBLEMS_H_
