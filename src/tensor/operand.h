// SPDX-License-Identifier: Apache-2.0
// What phase one knows of an operator's arguments: snapshots of tensors and arrays, taken once, so
// that every check and the plan see the same values whatever other threads do to the originals.
#ifndef ACLGRAD_TENSOR_OPERAND_H_
#define ACLGRAD_TENSOR_OPERAND_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "aclnn/acl_meta.h"
#include "base/status.h"
#include "base/view.h"

namespace aclgrad {

// A tensor parameter. `rank` may exceed kMaxRank (phase one refuses it); dims and strides then hold
// the first eight entries only.
struct Operand {
  const char* name = "";              // the parameter's contract name, for messages
  const aclTensor* handle = nullptr;  // null: an optional parameter that was not given
  uint64_t rank = 0;
  std::array<int64_t, kMaxRank> dims{};
  std::array<int64_t, kMaxRank> strides{};
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  int64_t offset = 0;             // in elements, from the storage's base
  int64_t storage_elements = -1;  // product of the storage dims; -1: unknown
  void* data = nullptr;           // the storage's base at this moment

  bool given() const { return handle != nullptr; }
  int64_t dim(int64_t index) const { return dims[static_cast<size_t>(index)]; }
  int64_t last_dim() const { return dims[static_cast<size_t>(rank - 1)]; }
  int64_t numel() const;  // valid after check::sizes
  View view() const;      // valid after check::rank
};

// "[4,1]"; for a rank over 8 the first eight dims and "...".
std::string shape_text(const Operand& operand);
std::string shape_text(const int64_t* dims, uint64_t rank);

// Each function refuses with a message (and its status), or fills `out` and returns 0.
// `op` is the operator's name as messages begin with it: "aclnnLayerNormBackward".
Status read_tensor(const char* op, const char* name, const aclTensor* tensor, Operand& out);
Status read_int_array(const char* op, const char* name, const aclIntArray* array,
                      std::vector<int64_t>& out);
Status read_bool_array(const char* op, const char* name, const aclBoolArray* array,
                       std::vector<bool>& out);

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_OPERAND_H_
