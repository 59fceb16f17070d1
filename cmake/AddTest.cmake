# SPDX-License-Identifier: Apache-2.0
# add_aclgrad_test(name sources...): a GoogleTest program against the three libraries, run by ctest.
# It sees include/, src/ (its own white-box neighbours) and tests/ ("support/...").

# A randomised mapping of 32 bits kills ThreadSanitizer at start.
set(ACLGRAD_TEST_LAUNCHER "")
if(ACLGRAD_SANITIZE STREQUAL "thread")
  find_program(ACLGRAD_SETARCH setarch REQUIRED)
  set(ACLGRAD_TEST_LAUNCHER ${ACLGRAD_SETARCH} ${CMAKE_HOST_SYSTEM_PROCESSOR} -R)
endif()

set(ACLGRAD_TEST_ENVIRONMENT
  "ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:detect_stack_use_after_return=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=second_deadlock_stack=1:halt_on_error=0:exitcode=66"
  "ACLGRAD_ORACLE_PYTHON=${ACLGRAD_ORACLE_PYTHON}")

# register_test(name command...): a ctest with the environment that all tests share.
function(register_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 ENVIRONMENT "${ACLGRAD_TEST_ENVIRONMENT}")
endfunction()

function(add_aclgrad_program name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE aclgrad_settings opapi nnopbase ascendcl)
endfunction()

function(add_aclgrad_test name)
  add_aclgrad_program(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE GTest::gtest_main hwy::hwy)
  register_test(${name} ${ACLGRAD_TEST_LAUNCHER} $<TARGET_FILE:${name}>)
endfunction()
