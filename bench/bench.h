// SPDX-License-Identifier: Apache-2.0
// What an operator's bench.cpp gives the bench: how to make a problem from its name, and the shapes
// that real models have. A name is operator/dtype/shape, as the verbose line prints it:
// layer_norm_backward/f16/4096x1024.
//
//   void check(aclDataType, const std::string& shape) { parse_dims(shape, 2); }
//   Problem make(aclDataType dtype, const std::string& shape) {
//     struct Tensors { Tensor dy, x, ...; };
//     auto t = std::make_shared<Tensors>(...);
//     return {[t](uint64_t* size, aclOpExecutor** executor) { return aclnn...(...); },
//             aclnnLayerNormBackward, t->dy.bytes() + ...};
//   }
//   const bool added = add({"layer_norm_backward", check, make, in_dtypes(kAllFloats,
//   {"4096x1024"})});
#ifndef ACLGRAD_BENCH_BENCH_H_
#define ACLGRAD_BENCH_BENCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "base/dtype.h"

namespace aclgrad::bench {

using Dims = std::vector<int64_t>;

// The memory traffic that a problem's time is compared with.
enum class Roof {
  kCopy,  // half of the bytes are read and half are written
  kRead,  // nearly all of them are read
};

// A problem with its data in place, that can be run any number of times.
struct Problem {
  // Phase one with its arguments bound; what it captures owns the tensors.
  std::function<aclnnStatus(uint64_t* workspace_size, aclOpExecutor** executor)> plan;
  // Phase two.
  aclnnStatus (*execute)(void*, uint64_t, aclOpExecutor*, aclrtStream);
  // Bytes that must move at least: every input read once, every output written once.
  int64_t bytes;
  // Additions, multiplications and calls of exp that the formula asks for.
  double flops = 0;
  Roof roof = Roof::kCopy;
};

struct Operator {
  std::string name;
  // Throws std::invalid_argument, with what it expects, for a shape that is none or a dtype that
  // the operator has not. Takes no time, so that all problems of a run are checked before the
  // first.
  std::function<void(aclDataType dtype, const std::string& shape)> check;
  // Throws as check() does.
  std::function<Problem(aclDataType dtype, const std::string& shape)> make;
  std::vector<std::string> defaults;  // "dtype/shape", measured when nothing is named
};

// "dtype/shape" for every one of both.
std::vector<std::string> in_dtypes(const std::vector<std::string>& dtypes,
                                   const std::vector<std::string>& shapes);
inline const std::vector<std::string> kAllFloats = {"f32", "bf16", "f16"};
inline const std::vector<std::string> kHalfFloats = {"bf16", "f16"};

// Registers an operator; for initialisers at namespace scope. Always true.
bool add(Operator op);
const std::vector<Operator>& operators();

// The parts of a problem's name.
struct Job {
  const Operator* op;
  std::string dtype;
  std::string shape;
  std::string name() const { return op->name + "/" + dtype + "/" + shape; }
};
// Throws std::invalid_argument for a name that no operator makes a problem of.
Job parse_job(const std::string& name);

// Throws std::runtime_error with the library's message when an acl or aclnn call did not answer 0.
void require(int status, const char* what);

// "4096x1024" -> {4096, 1024}; throws std::invalid_argument when it is not `rank` numbers.
Dims parse_dims(const std::string& shape, size_t rank);
// Takes "<key>...<slash>" off the beginning of a shape: of "out110/4096x1024" with the key "out" it
// returns "110" and leaves "4096x1024"; empty when the shape does not begin so. A variant stands
// before the shape, where every rival that does not know it stumbles over it.
std::string take_variant(std::string& shape, const std::string& key);
// The dtype of a short name ("f16"); throws std::invalid_argument.
aclDataType parse_dtype(const std::string& name);

// How tensors made from now on lie in memory when they have two dims or more: "contiguous",
// "padded" (rows kPadding elements further apart), "transposed" (the last two dims change places
// in memory), "offset" (from the second element of their memory on), "strided" (every second
// element) or "reversed" (the last element comes first). Throws std::invalid_argument for another
// name.
void use_view(const std::string& name);
inline constexpr int64_t kPadding = 16;

// Tensors made from now on have memory, but nothing is written there: enough for phase one.
void use_no_data();

// A device tensor. Floating elements start as normal numbers, all others as 0.
class Tensor {
 public:
  Tensor(const Dims& dims, aclDataType dtype);
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor();

  // Replaces the elements in the order of memory; values are converted to the dtype. Fewer values
  // repeat.
  void fill(const std::vector<double>& values);
  aclTensor* handle() const { return handle_; }
  void* address() const { return address_; }
  int64_t bytes() const;  // of the elements
  int64_t numel() const;

  // Of the memory of all tensors that live.
  static int64_t bytes_in_use();

 private:
  Dims dims_;
  aclDataType dtype_;
  int64_t storage_bytes_;
  void* address_ = nullptr;
  aclTensor* handle_ = nullptr;
};

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_BENCH_H_
