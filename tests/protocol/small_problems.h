// SPDX-License-Identifier: Apache-2.0
// A small valid call of each operator function, all in one table: what holds for every operator is
// tested on every row of it. The rows come from small_problems/<operator>.cpp.
#ifndef ACLGRAD_TESTS_PROTOCOL_SMALL_PROBLEMS_H_
#define ACLGRAD_TESTS_PROTOCOL_SMALL_PROBLEMS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
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

using MakeSmallProblem = SmallProblem (*)(Arrangement);

// For the rows: parameters, tensors, and pointers that are const for some outputs and not for
// others.
constexpr Parameter in(const char* name) { return {name, false, false, false}; }
constexpr Parameter optional(const char* name) { return {name, false, true, false}; }
constexpr Parameter out(const char* name) { return {name, true, false, false}; }
inline std::shared_ptr<Tensor> tensor(const Dims& dims, aclDataType dtype,
                                      Arrangement arrangement = Arrangement::kContiguous) {
  return std::make_shared<Tensor>(dims, dtype, arrangement);
}
inline aclTensor* writable(const aclTensor* handle) { return const_cast<aclTensor*>(handle); }

size_t small_problem_count();

// The row'th problem, its floating tensors in that arrangement. The same numbers every time for the
// same seed. Inner-strided tensors are packed, so the plan then needs workspace.
SmallProblem make_small_problem(size_t row, Arrangement arrangement = Arrangement::kContiguous,
                                uint64_t seed = 1);

// "LayerNormBackward", for the names of parameterised tests, and the row of that name.
std::string small_problem_name(size_t row);
size_t small_problem_row(const std::string& name);

// What a correct run writes.
std::vector<uint8_t> expected_result(size_t row, uint64_t seed = 1);

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_PROTOCOL_SMALL_PROBLEMS_H_
