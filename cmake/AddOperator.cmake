# SPDX-License-Identifier: Apache-2.0
# add_operator(name): the fixed files of src/ops/<name> become part of libopapi, a test program and a
# part of the bench; tests may fill more files, <subject>_test.cpp, and kernels for GPUs are in
# cuda.cu. Nothing else in the tree needs to know the operator. Tests that go over all operators
# read the global property
# ACLGRAD_OPERATORS.

set(ACLGRAD_OPERATOR_ROLES
  README.md problem.h problem.cpp api.cpp tree.h cpu.cpp reference.h cases.h test.cpp bench.cpp)

# A part of the operator's tests once more: threads and blocks of kernels in the other order, so that
# many a barrier that is missing shows, and three blocks to a grid, so that each takes several turns.
function(add_emulated_order_test name)
  if(ACLGRAD_CUDA STREQUAL "EMULATED")
    register_test(${name}_order_test ${CMAKE_COMMAND} -E env
      ACLGRAD_EMULATED_ORDER=backward ACLGRAD_EMULATED_BLOCKS=3 $<TARGET_FILE:${name}_test>
      --gtest_filter=*Example*:*EveryStridedView*:*InPlace*:*BothVersions*:*DataErrors*:*Blocks*:*OneElement*:*EveryMask*)
  endif()
endfunction()

# An operator's tests where cores do with prefetches what this machine's do not (prefetch.h), and
# with masked loads what they do or do not (masked_loads.h).
function(add_prefetches_tests name)
  if(NOT ACLGRAD_SANITIZE STREQUAL "none" OR ACLGRAD_CUDA STREQUAL "EMULATED")
    return()
  endif()
  set(own waiting)
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo amd REGEX "^vendor_id.*AuthenticAMD" LIMIT_COUNT 1)
    file(STRINGS /proc/cpuinfo family REGEX "^cpu family" LIMIT_COUNT 1)
    string(REGEX REPLACE "[^0-9]" "" family "${family}")
    file(STRINGS /proc/cpuinfo bf16 REGEX "^flags.* avx512_bf16" LIMIT_COUNT 1)
    if(amd AND bf16 AND family GREATER_EQUAL 26)
      set(own taken)
    elseif(amd)
      set(own dropped)
    endif()
  endif()
  # Masked loads are slow for one of the others and not for the second.
  set(masked_loads slow)
  foreach(kind dropped waiting taken)
    if(NOT kind STREQUAL own)
      register_test(${name}_prefetches_${kind}_test ${CMAKE_COMMAND} -E env
        ACLGRAD_PREFETCHES=${kind} ACLGRAD_MASKED_LOADS=${masked_loads}
        ${ACLGRAD_TEST_LAUNCHER} $<TARGET_FILE:${name}_test>)
      set(masked_loads fast)
    endif()
  endforeach()
endfunction()

# add_operator(name [PREFETCHES]); PREFETCHES: its kernels read in another order by what cores do
# with prefetches, and its tests run each way.
function(add_operator name)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  foreach(role IN LISTS ACLGRAD_OPERATOR_ROLES)
    if(NOT EXISTS ${folder}/${role})
      message(FATAL_ERROR "operator ${name} lacks src/ops/${name}/${role}")
    endif()
  endforeach()
  if(NOT EXISTS ${PROJECT_SOURCE_DIR}/include/aclnnop/aclnn_${name}.h)
    message(FATAL_ERROR "operator ${name} lacks include/aclnnop/aclnn_${name}.h")
  endif()

  # Looked for again at every build: a file that comes changes how others are compiled.
  file(GLOB kernels CONFIGURE_DEPENDS ${folder}/cuda.cu)
  # An emulated GPU is for what has kernels for it.
  if(ACLGRAD_CUDA STREQUAL "EMULATED" AND NOT kernels)
    return()
  endif()

  target_sources(opapi PRIVATE ${folder}/problem.cpp ${folder}/api.cpp ${folder}/cpu.cpp)
  set_source_files_properties(${folder}/cpu.cpp PROPERTIES
    COMPILE_OPTIONS "${ACLGRAD_KERNEL_OPTIONS}")
  if(kernels)
    add_cuda_kernels(opapi ${kernels})
    if(ACLGRAD_HAS_CUDA)
      set_property(GLOBAL APPEND PROPERTY ACLGRAD_CUDA_OPERATORS ${name})
    endif()
  endif()
  set_property(GLOBAL APPEND PROPERTY ACLGRAD_OPERATORS ${name})

  if(ACLGRAD_DEVELOPER_MODE)
    file(GLOB tests CONFIGURE_DEPENDS ${folder}/*_test.cpp)
    list(APPEND tests ${folder}/test.cpp)
    # PLAIN: the formula in FP64 for millions of elements is two thirds of the minutes under a
    # sanitizer, and one object serves every build.
    add_aclgrad_test(${name}_test PLAIN ${tests})
    if("PREFETCHES" IN_LIST ARGN)
      add_prefetches_tests(${name})
    endif()
    if(kernels)
      set_tests_properties(${name}_test PROPERTIES LABELS cuda)
      add_emulated_order_test(${name})
    endif()
    set_property(GLOBAL APPEND PROPERTY ACLGRAD_BENCH_SOURCES ${folder}/bench.cpp)
  endif()
endfunction()
