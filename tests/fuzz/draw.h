// SPDX-License-Identifier: Apache-2.0
// Random tensors: strides of any kind, numbers of several sizes, and now and then values that are
// no numbers.
#ifndef ACLGRAD_TESTS_FUZZ_DRAW_H_
#define ACLGRAD_TESTS_FUZZ_DRAW_H_

#include <memory>
#include <string>
#include <vector>

#include "support/random.h"
#include "support/tensor.h"

namespace aclgrad::fuzz {

using test::Dims;
using test::Random;
using test::Tensor;
using TensorPointer = std::shared_ptr<Tensor>;

inline constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

// A tensor of these dims in random memory order, with gaps, lead and negative strides; inputs may
// repeat (stride 0). Elements are poisoned.
TensorPointer draw_input(Random& random, const Dims& dims, aclDataType dtype);
TensorPointer draw_output(Random& random, const Dims& dims, aclDataType dtype);

// Numbers for a floating tensor: normal ones, large, tiny (subnormal in 16 bits), of every size,
// all alike, small whole ones; seldom with Inf and NaN among them.
void fill_floats(Random& random, Tensor& tensor);
// The same without Inf, NaN and large numbers, and without tiny ones unless they are asked for.
void fill_finite(Random& random, Tensor& tensor, bool tiny);
bool all_finite(const Tensor& tensor);
// Whether elements share memory, so that the tensor cannot be an output.
bool repeats(const Tensor& tensor);

// A length: mostly small, often around 16 and its multiples, seldom large, seldom 0.
int64_t draw_length(Random& random, int64_t most);

// `rank` lengths with a product of at most `most`.
Dims draw_dims(Random& random, size_t rank, int64_t most);

// Dims with that product: the number itself, or split in two or three, or with ones between.
Dims draw_factors(Random& random, int64_t product);

// "f16[3,5]/5,1", for the description of a problem.
std::string text_of(const Tensor& tensor);

}  // namespace aclgrad::fuzz

#endif  // ACLGRAD_TESTS_FUZZ_DRAW_H_
