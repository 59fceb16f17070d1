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
  # g++ 12 sees overlaps in std::string that cannot be (GCC bug 105329).
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  # g++ 12 for AArch64 takes totals that row_sums() sets wherever it adds to them for uninitialised.
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>,$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},aarch64>>:-Wno-maybe-uninitialized>
  $<$<BOOL:${ACLGRAD_WERROR}>:-Werror>)
