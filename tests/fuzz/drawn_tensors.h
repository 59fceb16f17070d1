// SPDX-License-Identifier: Apache-2.0
// The tensors of a drawn call, and the handles that are passed for them.
#ifndef ACLGRAD_TESTS_FUZZ_DRAWN_TENSORS_H_
#define ACLGRAD_TESTS_FUZZ_DRAWN_TENSORS_H_

#include <memory>
#include <utility>
#include <vector>

#include "fuzz/attempt.h"
#include "fuzz/draw.h"

namespace aclgrad::fuzz {

template <size_t n>
using Names = const char* const[n];

template <size_t n>
struct DrawnTensors {
  TensorPointer tensors[n];
  const aclTensor* handles[n] = {};
  std::vector<std::shared_ptr<void>> kept;

  void use(size_t index, const TensorPointer& tensor) {
    tensors[index] = tensor;
    handles[index] = tensors[index]->handle();
  }
  // Only for arguments that are to be refused: the tensor in its place stays for the others.
  void replace(size_t index, const Dims& dims, aclDataType dtype) {
    auto tensor = std::make_shared<Tensor>(dims, dtype);
    handles[index] = tensor->handle();
    kept.push_back(std::move(tensor));
  }
  void break_one(Random& random, size_t index, const Names<n>& names, Attempt& attempt) {
    BrokenTensor broken = break_tensor(random, *tensors[index], names[index], attempt);
    handles[index] = broken.handle;
    kept.push_back(broken.kept);
  }
  // Contract pointers are const for some outputs and not for others.
  aclTensor* writable(size_t index) const { return const_cast<aclTensor*>(handles[index]); }

  // The first `inputs` are inputs, the others outputs.
  void describe(const Names<n>& names, size_t inputs, Attempt& attempt) const {
    for (size_t i = 0; i < n; ++i) {
      attempt.describe(names[i], *tensors[i]);
      (i < inputs ? attempt.inputs : attempt.outputs).push_back(tensors[i]);
    }
  }
};

}  // namespace aclgrad::fuzz

#endif  // ACLGRAD_TESTS_FUZZ_DRAWN_TENSORS_H_
