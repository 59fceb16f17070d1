// SPDX-License-Identifier: Apache-2.0
// The arguments of a phase one as words. Programs call an operator on the same tensors again and
// again: where all words are those of an earlier call, and the tensors are as they were then, its
// plan is right again (launch_state.h).
#ifndef ACLGRAD_TENSOR_CALL_KEY_H_
#define ACLGRAD_TENSOR_CALL_KEY_H_

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "aclnn/acl_meta.h"

namespace aclgrad {

struct CallKey {
  static constexpr size_t kMost = 16;

  std::array<uint64_t, kMost> words;
  uint32_t count = 0;
  // Bit i: word i is the handle of a tensor (of an array), or null.
  uint32_t tensors = 0, arrays = 0;
  bool known = true;  // the words are all of the arguments

  // All inputs and outputs of the signature, in its order.
  template <class... Arguments>
  explicit CallKey(Arguments... arguments) {
    static_assert(sizeof...(Arguments) <= kMost);
    (add(arguments), ...);
  }

 private:
  void put(uint64_t word) { words[count++] = word; }
  void add(const aclTensor* tensor) {
    tensors |= uint32_t{1} << count;
    put(reinterpret_cast<uintptr_t>(tensor));
  }
  void add(const aclIntArray* array) { add_array(array); }
  void add(const aclBoolArray* array) { add_array(array); }
  void add_array(const void* array) {
    arrays |= uint32_t{1} << count;
    put(reinterpret_cast<uintptr_t>(array));
  }
  void add(double value) { put(std::bit_cast<uint64_t>(value)); }
  void add(std::integral auto value) { put(static_cast<uint64_t>(value)); }
  // A word holds the text itself, because the program may change what is there. Never 0, which is
  // null.
  void add(const char* text) {
    uint64_t word = 0;
    if (text != nullptr) {
      size_t length = 0;
      for (; length < 7 && text[length] != '\0'; ++length) {
        word = word << 8 | static_cast<unsigned char>(text[length]);
      }
      known = known && text[length] == '\0';
      word = word << 8 | (length + 1);
    }
    put(word);
  }
};

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_CALL_KEY_H_
