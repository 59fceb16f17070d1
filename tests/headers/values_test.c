// SPDX-License-Identifier: Apache-2.0
// The values of the interface as C11 sees them. In C a `static const int` is no constant
// expression, so the error codes of acl are compared when the program runs, all others when it is
// compiled.
#include <assert.h>
#include <stddef.h>
#include <stdio.h>

#include "acl/acl.h"
#include "preprocessor_values.h"
#include "signatures.h"

#define CONSTANT(name, wanted)
#define MACRO(name, wanted) static_assert((name) == (wanted), #name);
#define FLAG(name, wanted) \
  static_assert((name) == (wanted) && _Generic((name), unsigned int : 1, default : 0), #name);
#define ENUMERATOR(type, name, wanted) \
  static_assert((name) == (wanted) && sizeof(type) == sizeof(int), #name);
#include "values_table.inc"
#undef CONSTANT
#undef MACRO
#undef FLAG
#undef ENUMERATOR

static_assert(_Generic((aclError)0, int : 1, default : 0), "aclError is int");
static_assert(_Generic((aclnnStatus)0, int32_t : 1, default : 0), "aclnnStatus is int32_t");
static_assert(_Generic((aclFloat16)0, uint16_t : 1, default : 0), "aclFloat16 is uint16_t");
static_assert(_Generic((aclrtStream)0, void* : 1, default : 0), "aclrtStream is void*");
static_assert(_Generic((aclrtEvent)0, void* : 1, default : 0), "aclrtEvent is void*");
static_assert(_Generic((aclrtContext)0, void* : 1, default : 0), "aclrtContext is void*");
static_assert(_Generic((aclrtNotify)0, void* : 1, default : 0), "aclrtNotify is void*");
static_assert(_Generic((aclrtCallback)0, void (*)(void*) : 1, default : 0), "aclrtCallback");

struct Constant {
  const char* name;
  int actual;
  int expected;
};

int main(void) {
  const struct Constant constants[] = {
#define CONSTANT(name, wanted) {#name, name, wanted},
#define MACRO(name, wanted)
#define FLAG(name, wanted)
#define ENUMERATOR(type, name, wanted)
#include "values_table.inc"
  };
  const size_t count = sizeof(constants) / sizeof(constants[0]);
  int failures = 0;
  for (size_t i = 0; i < count; ++i) {
    if (constants[i].actual == constants[i].expected) continue;
    printf("%s is %d, expected %d\n", constants[i].name, constants[i].actual,
           constants[i].expected);
    ++failures;
  }
  printf("%zu error codes compared, %d differ\n", count, failures);
  return failures == 0 && count > 0 ? 0 : 1;
}
