// SPDX-License-Identifier: Apache-2.0
// The command line.
#ifndef ACLGRAD_TRAIN_OPTIONS_H_
#define ACLGRAD_TRAIN_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "acl/acl.h"

namespace aclgrad::train {

struct Options {
  bool help = false;
  bool check = false;  // compare with PyTorch in place of training
  bool goal = false;   // fail where the validation loss is not below the goal
  std::string text;
  std::string size = "base";
  aclDataType dtype = ACL_FLOAT;
  uint64_t steps = 800;
  size_t threads = 0;  // as many as there are CPUs
  uint64_t seed = 1;
  std::string save, load, curve;
  uint64_t save_every = 0;  // steps; 0: at the end only
  size_t sample = 300;      // bytes of generated text, before and after
};

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

extern const char* const kUsage;

// Throws UsageError.
Options parse_options(const std::vector<std::string>& arguments);
// Throws UsageError where what is written would destroy what is read or the other thing written.
void expect_apart(const Options& options);

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_OPTIONS_H_
