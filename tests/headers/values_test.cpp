// SPDX-License-Identifier: Apache-2.0
// The values and types of the interface as C++11 and C++20 see them: all compared when compiled.
#include <cstdint>
#include <type_traits>

#include "acl/acl.h"
#include "preprocessor_values.h"
#include "signatures.h"

// A literal of the table may lack its U.
#define FLAG(name, wanted)                   \
  static_assert((name) == wanted##U, #name); \
  static_assert(std::is_same<decltype(name), unsigned int>::value, #name);
#define CONSTANT(name, wanted)              \
  static_assert((name) == (wanted), #name); \
  static_assert(std::is_same<decltype(name), const int>::value, #name);
#define MACRO(name, wanted)                 \
  static_assert((name) == (wanted), #name); \
  static_assert(std::is_same<decltype(name), int>::value, #name);
#define ENUMERATOR(type, name, wanted)                             \
  static_assert((name) == (wanted), #name);                        \
  static_assert(std::is_same<decltype(name), type>::value, #name); \
  static_assert(sizeof(type) == sizeof(int), #type);
#include "values_table.inc"

static_assert(std::is_same<aclError, int>::value, "aclError is int");
static_assert(std::is_same<aclnnStatus, std::int32_t>::value, "aclnnStatus is int32_t");
static_assert(std::is_same<aclFloat16, std::uint16_t>::value, "aclFloat16 is uint16_t");
static_assert(std::is_same<aclrtStream, void*>::value, "aclrtStream is void*");
static_assert(std::is_same<aclrtEvent, void*>::value, "aclrtEvent is void*");
static_assert(std::is_same<aclrtContext, void*>::value, "aclrtContext is void*");
static_assert(std::is_same<aclrtNotify, void*>::value, "aclrtNotify is void*");
static_assert(std::is_same<aclrtCallback, void (*)(void*)>::value, "aclrtCallback");
static_assert(std::is_same<decltype(OK), const aclnnStatus>::value && OK == 0, "OK");
