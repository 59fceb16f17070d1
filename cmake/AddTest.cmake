# SPDX-License-Identifier: Apache-2.0
# add_aclgrad_test(name [PLAIN] sources...): a GoogleTest program against the three libraries, run by
# ctest. PLAIN: no sanitizer sees the program's own code, only the libraries'.
# precompile_test_headers(name): for a program that uses GoogleTest and was not added so.
# register_test(name command...): any other test. register_oracle_test(name command...): one that
# needs PyTorch; it finds the python in the environment variable ACLGRAD_ORACLE_PYTHON.
# keep_on_cpu(tests...): they run on the CPU's device, whatever ACLGRAD_DEVICE says outside.
# list_operators(...): a table of what every operator brings for a test of all of them.
# Programs see include/, src/ (reference.h, cases.h, white-box neighbours) and tests/ ("support/...").

# Where the kernel randomises mappings by 32 bits ThreadSanitizer dies at start; where setarch is not
# allowed (some containers) it is done without.
set(ACLGRAD_TEST_LAUNCHER "")
if(ACLGRAD_SANITIZE STREQUAL "thread")
  execute_process(COMMAND setarch ${CMAKE_HOST_SYSTEM_PROCESSOR} -R true
    RESULT_VARIABLE setarch_result OUTPUT_QUIET ERROR_QUIET)
  if(setarch_result EQUAL 0)
    set(ACLGRAD_TEST_LAUNCHER setarch ${CMAKE_HOST_SYSTEM_PROCESSOR} -R)
  endif()
endif()

if(CMAKE_CROSSCOMPILING_EMULATOR)
  set(ACLGRAD_TEST_LAUNCHER ${CMAKE_CROSSCOMPILING_EMULATOR})
endif()

if(ACLGRAD_ORACLE AND NOT ACLGRAD_ORACLE_PYTHON)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/scripts/oracle.sh find
    OUTPUT_VARIABLE oracle_python OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(ACLGRAD_ORACLE_PYTHON "${oracle_python}" CACHE FILEPATH "" FORCE)
endif()

set(ACLGRAD_TEST_ENVIRONMENT
  "ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=1:strict_string_checks=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=allocator_may_return_null=1:second_deadlock_stack=1"
  "ACLGRAD_ORACLE_PYTHON=${ACLGRAD_ORACLE_PYTHON}")

# An emulated GPU is what a build of it tests.
if(ACLGRAD_CUDA STREQUAL "EMULATED")
  list(APPEND ACLGRAD_TEST_ENVIRONMENT "ACLGRAD_DEVICE=cuda")
endif()

function(register_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 ENVIRONMENT "${ACLGRAD_TEST_ENVIRONMENT}")
endfunction()

# Of what a GPU does otherwise by design, or cannot do: `make test` passes on one, too.
function(keep_on_cpu)
  set_property(TEST ${ARGN} APPEND PROPERTY ENVIRONMENT ACLGRAD_DEVICE=cpu)
endfunction()

# What stands in for an oracle that cannot run: it fails. (&& and not a semicolon, at which CMake
# would cut the command in two, the first half a success.)
set(ACLGRAD_ABSENT_ORACLE sh -c "echo 'NOT RUN: no python with PyTorch 2.13 was found' && exit 1")

function(register_oracle_test name)
  if(ACLGRAD_ORACLE AND NOT ACLGRAD_ORACLE_PYTHON)
    register_test(${name} ${ACLGRAD_ABSENT_ORACLE})
  else()
    register_test(${name} ${ARGN})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS oracle)
  if(NOT ACLGRAD_ORACLE)
    set_tests_properties(${name} PROPERTIES DISABLED ON)
  endif()
endfunction()

function(use_aclgrad_libraries name settings)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/tests ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${settings} opapi nnopbase ascendcl)
endfunction()

# What tests include of others is half of what they take to compile with a sanitizer. Other builds do
# without, and so show what a file forgot to include.
function(precompile_test_headers name)
  if(ACLGRAD_SANITIZE STREQUAL "none")
    return()
  endif()
  if(NOT TARGET precompiled_test_headers)
    set(source ${CMAKE_BINARY_DIR}/precompiled_test_headers.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "")
    add_library(precompiled_test_headers OBJECT EXCLUDE_FROM_ALL ${source})
    use_aclgrad_libraries(precompiled_test_headers aclgrad_settings)
    target_link_libraries(precompiled_test_headers PRIVATE GTest::gtest)
    target_precompile_headers(precompiled_test_headers PRIVATE
      <gtest/gtest.h> <algorithm> <array> <atomic> <cmath> <cstdint> <functional> <limits> <map>
      <optional> <random> <span> <string> <string_view> <thread> <tuple> <utility> <vector>)
  endif()
  target_precompile_headers(${name} REUSE_FROM precompiled_test_headers)
  # g++ 12 forgets that <string> is a header of the system, and sees writes past its local buffer.
  target_compile_options(${name} PRIVATE
    "$<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>")
endfunction()

function(add_aclgrad_program name)
  add_executable(${name} ${ARGN})
  use_aclgrad_libraries(${name} aclgrad_settings)
endfunction()

# The sanitizers see no stores past the caches, and rows are read there as below that size; emulated
# kernels know no caches. What is slow for its size alone is left to the other builds: under
# ThreadSanitizer that was 1,500 s of processors, of 2,500.
set(ACLGRAD_TEST_FILTER "")
if(NOT ACLGRAD_SANITIZE STREQUAL "none" OR ACLGRAD_CUDA STREQUAL "EMULATED")
  # By whole phrases: tests of leaks, errors and plans have such words in their names, too.
  string(CONCAT ACLGRAD_TEST_FILTER "--gtest_filter=-"
    "*LargeOutput*:*LargerThanTheCache*:*BypassTheCaches:*.Streamed*:*.LargeTables:*.LargeViews:"
    "*.Large*RowsThatAreNotWholeLines:*.AMillionTerms*:*.AMillionRows*")
endif()

function(add_aclgrad_test name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "PLAIN" "" "")
  if(TEST_PLAIN)
    add_executable(${name} ${TEST_UNPARSED_ARGUMENTS})
    use_aclgrad_libraries(${name} aclgrad_plain_settings)
    target_link_options(${name} PRIVATE ${ACLGRAD_SANITIZER_FLAGS})
  else()
    add_aclgrad_program(${name} ${TEST_UNPARSED_ARGUMENTS})
    precompile_test_headers(${name})
  endif()
  # Tests compile in half the time of -O3 so.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1;-g1>)
  target_link_libraries(${name} PRIVATE GTest::gtest_main hwy::hwy)
  register_test(${name} ${ACLGRAD_TEST_LAUNCHER} $<TARGET_FILE:${name}> ${ACLGRAD_TEST_FILTER})
endfunction()

# list_operators(folder include namespace result prefix arguments [operators...]): an operator's file in `folder`
# defines `result prefix<operator>(arguments)`. Writes operators.h, which includes `include`, declares
# them and has them in the table kOperators; sets OPERATOR_SOURCES to the files.
function(list_operators folder include namespace result prefix arguments)
  set(operators ${ARGN})
  if(NOT operators)
    get_property(operators GLOBAL PROPERTY ACLGRAD_OPERATORS)
  endif()
  set(sources "")
  set(declarations "")
  set(rows "")
  foreach(operator IN LISTS operators)
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${operator}.cpp)
    if(NOT EXISTS ${source})
      message(WARNING "operator ${operator} lacks ${source}")
      continue()
    endif()
    list(APPEND sources ${source})
    string(APPEND declarations "${result} ${prefix}${operator}(${arguments});\n")
    string(APPEND rows "    ${prefix}${operator},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/operators.h @ONLY CONTENT
"// The operators of src/ops/CMakeLists.txt.
#pragma once
#include \"@include@\"
namespace @namespace@ {
@declarations@
inline constexpr @result@ (*kOperators[])(@arguments@) = {
@rows@};
}  // namespace @namespace@
")
  set(OPERATOR_SOURCES ${sources} PARENT_SCOPE)
endfunction()
