// SPDX-License-Identifier: Apache-2.0
// What phase one knows of an operator's arguments: snapshots of tensors and arrays, taken once, so
// that every check and the plan see the same values whatever other threads do to the originals.
#ifndef ACLGRAD_TENSOR_OPERAND_H_
#define ACLGRAD_TENSOR_OPERAND_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "aclnn/acl_meta.h"
#include "base/short_list.h"
#include "base/status.h"
#include "base/view.h"

namespace aclgrad {

// Values of Operand::storage_elements that are no number of elements.
inline constexpr int64_t kStorageUnknown = -1;  // nothing said, or the view's own dims repeated
inline constexpr int64_t kStorageInvalid =
    -2;  // a negative storage dimension: check::sizes refuses

// What follows from a tensor's description. Found once, when it is described: not at every call.
struct Facts {
  int64_t elements = 0;
  // Bytes from the storage's base: to element (0, 0, ...), to the view's lowest byte, and behind
  // its highest. All 0 without elements.
  int64_t first = 0, low = 0, high = 0;
  int dense_dims = 0;  // how many of the last dimensions are one dense run
  bool fit = false;    // check::sizes accepts the tensor; if not, the others say nothing
};

// A tensor parameter. `rank` may exceed kMaxRank (phase one refuses it); dims and strides then hold
// the first eight entries only.
struct Operand {
  const char* name = "";              // the parameter's contract name, for messages
  const aclTensor* handle = nullptr;  // null: an optional parameter that was not given
  uint64_t rank = 0;
  std::array<int64_t, kMaxRank> dims;  // like those of a View
  std::array<int64_t, kMaxRank> strides;
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  int64_t offset = 0;                          // in elements, from the storage's base
  int64_t storage_elements = kStorageUnknown;  // product of the storage dims, or see above
  void* data = nullptr;                        // the storage's base at this moment
  uint32_t version = 0;                        // of the description
  Facts facts;

  bool given() const { return handle != nullptr; }
  int64_t dim(int64_t index) const { return dims[static_cast<size_t>(index)]; }
  int64_t last_dim() const { return dims[static_cast<size_t>(rank - 1)]; }
  int kept_dims() const { return static_cast<int>(std::min<uint64_t>(rank, kMaxRank)); }

  // Right once check::sizes passed; before that the product may have wrapped.
  int64_t numel() const {
    if (facts.fit) return facts.elements;
    uint64_t product = 1;
    for (int i = 0; i < kept_dims(); ++i) {
      product *= static_cast<uint64_t>(dims[static_cast<size_t>(i)]);
    }
    return static_cast<int64_t>(product);
  }
  // Valid after check::rank.
  View view() const { return View{dtype, kept_dims(), dims, strides}; }
};

// The entries of an array parameter.
using IntEntries = ShortList<int64_t, 8>;
using BoolEntries = ShortList<bool, 8>;

// Each function refuses with a message (and its status), or fills `out` and returns 0.
// `op` is the operator's name as messages begin with it: "aclnnLayerNormBackward".
// A null tensor is an optional parameter that was not given; a null array leaves `out` empty.
extern "C" {
[[gnu::visibility("default")]] Status aclgrad_read_tensor(const char* op, const char* name,
                                                          const aclTensor* tensor, Operand& out);
[[gnu::visibility("default")]] Status aclgrad_read_int_array(const char* op, const char* name,
                                                             const aclIntArray* array,
                                                             IntEntries& out);
[[gnu::visibility("default")]] Status aclgrad_read_bool_array(const char* op, const char* name,
                                                              const aclBoolArray* array,
                                                              BoolEntries& out);
[[gnu::visibility("default")]] std::string aclgrad_shape_text(const int64_t* dims, uint64_t rank);
}

inline constexpr auto& read_tensor = aclgrad_read_tensor;
inline constexpr auto& read_int_array = aclgrad_read_int_array;
inline constexpr auto& read_bool_array = aclgrad_read_bool_array;

// "[4,1]"; for a rank over 8 the first eight dims and "...".
inline std::string shape_text(const int64_t* dims, uint64_t rank) {
  return aclgrad_shape_text(dims, rank);
}
inline std::string shape_text(const Operand& operand) {
  return aclgrad_shape_text(operand.dims.data(), operand.rank);
}

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_OPERAND_H_
