// SPDX-License-Identifier: Apache-2.0
// What must not change a bit of a result: the instruction set, the number of threads, the caller's
// floating-point modes. run() -> Outcome computes the outputs, which hold its results when the
// functions below are called, and writes all of them again.
#ifndef ACLGRAD_TESTS_SUPPORT_SAME_BITS_H_
#define ACLGRAD_TESTS_SUPPORT_SAME_BITS_H_

#include <gtest/gtest.h>

#include <cfenv>
#include <cstdint>
#include <string>
#include <vector>

#include "support/compare.h"
#include "support/float_control.h"
#include "support/run.h"
#include "support/targets.h"
#include "support/tensor.h"

namespace aclgrad::test {

// Tensors, and the bits they have now.
class KeptBits {
 public:
  explicit KeptBits(const std::vector<Tensor*>& tensors) : tensors_(tensors) {
    for (const Tensor* tensor : tensors_) bits_.push_back(tensor->bits());
  }
  void poison() const {
    for (Tensor* tensor : tensors_) tensor->poison();
  }
  void expect(const std::string& name) const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      expect_same_bits(name + ", output " + std::to_string(i), tensors_[i]->bits(), bits_[i]);
    }
  }

 private:
  std::vector<Tensor*> tensors_;
  std::vector<std::vector<uint8_t>> bits_;
};

// On every instruction set and for every number of threads.
template <class Run>
void expect_same_bits_everywhere(Run&& run, const std::vector<Tensor*>& outputs) {
  const KeptBits kept(outputs);
  const auto run_again = [&](const std::string& name) {
    kept.poison();
    ASSERT_TRUE(run().ok());
    kept.expect(name);
  };
  for_each_target(run_again);
  for_each_thread_count([&](int threads) { run_again(std::to_string(threads) + " threads"); });
}

// With every rounding mode but the usual one and with subnormal numbers taken as zero; the modes
// stay as they are.
template <class Run>
void expect_same_bits_in_every_float_mode(Run&& run, const std::vector<Tensor*>& outputs) {
  const KeptBits kept(outputs);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    kept.poison();
    std::fesetround(mode);
    const Outcome outcome = run();
    EXPECT_EQ(std::fegetround(), mode);
    std::fesetround(FE_TONEAREST);
    ASSERT_TRUE(outcome.ok()) << outcome;
    kept.expect("rounding");
  }
  kept.poison();
  const uint64_t before = float_control();
  set_float_control(before | kSubnormalsAreZero);
  const Outcome outcome = run();
  EXPECT_EQ(float_control() & kSubnormalsAreZero, kSubnormalsAreZero);
  set_float_control(before);
  ASSERT_TRUE(outcome.ok()) << outcome;
  kept.expect("flush to zero");
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_SAME_BITS_H_
