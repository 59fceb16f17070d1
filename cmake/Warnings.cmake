# SPDX-License-Identifier: Apache-2.0
# The one list of warnings. Every own target gets it through aclgrad_settings.

add_library(aclgrad_warnings INTERFACE)
target_compile_options(aclgrad_warnings INTERFACE
  -Wall
  -Wextra
  -Wpedantic
  -Wshadow
  -Wconversion
  -Wsign-conversion
  -Wdouble-promotion
  -Wundef
  -Wmissing-declarations
  $<$<COMPILE_LANGUAGE:CXX>:-Wold-style-cast>
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
  $<$<BOOL:${ACLGRAD_WERROR}>:-Werror>)
