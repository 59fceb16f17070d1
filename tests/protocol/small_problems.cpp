// SPDX-License-Identifier: Apache-2.0
#include "protocol/small_problems.h"

#include <cmath>
#include <stdexcept>

#include "protocol/operators.h"

namespace aclgrad::test {
namespace {

// Inputs get numbers, outputs stay poisoned.
void fill_floats(SmallProblem& problem, uint64_t seed) {
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    Tensor& each = *problem.tensors[i];
    if (!problem.parameters[i].output && is_float_dtype(each.dtype())) {
      each.fill_normal(seed * 100 + i);
    }
  }
}

const std::vector<MakeSmallProblem>& rows() {
  static const std::vector<MakeSmallProblem> all = [] {
    std::vector<MakeSmallProblem> out;
    for (const auto& of_operator : kOperators) {
      for (const MakeSmallProblem make : of_operator()) out.push_back(make);
    }
    return out;
  }();
  return all;
}

}  // namespace

size_t small_problem_count() { return rows().size(); }

SmallProblem make_small_problem(size_t row, Arrangement arrangement, uint64_t seed) {
  SmallProblem problem = rows()[row](arrangement);
  fill_floats(problem, seed);
  return problem;
}

std::string small_problem_name(size_t row) {
  return make_small_problem(row).function.substr(5);  // without "aclnn"
}

size_t small_problem_row(const std::string& name) {
  for (size_t row = 0; row < rows().size(); ++row) {
    if (small_problem_name(row) == name) return row;
  }
  throw std::invalid_argument("no small problem of " + name);
}

std::vector<uint8_t> expected_result(size_t row, uint64_t seed) {
  const SmallProblem problem = make_small_problem(row, Arrangement::kContiguous, seed);
  const Outcome outcome =
      run([&](uint64_t* size, aclOpExecutor** executor) { return problem.plan(size, executor); },
          problem.execute);
  EXPECT_TRUE(outcome.ok()) << problem.function << ": " << outcome;
  EXPECT_TRUE(problem.guards_intact()) << problem.function;
  for (size_t i = 0; i < problem.tensors.size(); ++i) {
    for (const double value : problem.tensors[i]->values()) EXPECT_TRUE(std::isfinite(value));
  }
  return problem.result();
}

}  // namespace aclgrad::test
