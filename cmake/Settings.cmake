# SPDX-License-Identifier: Apache-2.0
# aclgrad_settings: what every own target is compiled with. aclgrad_plain_settings: the same without the
# sanitizer that the build may have.
# add_aclgrad_library(name sources...): a library of the toolkit with the export rules.

add_library(aclgrad_plain_settings INTERFACE)
add_library(aclgrad_settings INTERFACE)
target_link_libraries(aclgrad_settings INTERFACE aclgrad_plain_settings)
target_compile_features(aclgrad_plain_settings INTERFACE cxx_std_20 c_std_11)
target_link_libraries(aclgrad_plain_settings INTERFACE aclgrad_warnings Threads::Threads)
# g++ fuses a*b+c by itself where the instruction set has it; the results would then depend on the
# instruction set.
target_compile_options(aclgrad_plain_settings INTERFACE -ffp-contract=off)

# The sixteen lanes are arrays of registers, which SVE's of unknown length cannot be: NEON on ARM.
# SSSE3 without SSE4 is a machine of 2006 or 2007: it runs SCALAR, and every build is a fifth shorter.
set(disabled HWY_SSSE3 HWY_SVE HWY_SVE2 HWY_SVE_256 HWY_SVE2_128)
set(ACLGRAD_DISABLED_TARGETS "" CACHE STRING
  "Further instruction sets to leave out: HWY_AVX2;...; a sanitized build chooses where this is empty")
if(ACLGRAD_DISABLED_TARGETS)
  list(APPEND disabled ${ACLGRAD_DISABLED_TARGETS})
elseif(NOT ACLGRAD_SANITIZE STREQUAL "none" AND EXISTS /proc/cpuinfo)
  # Each instruction set costs minutes of compiling: SCALAR and AVX-512 or, where the machine lacks
  # it, AVX2. One that it lacks would leave SCALAR alone, which tests little and takes longer.
  file(STRINGS /proc/cpuinfo flags_with_avx512 REGEX "avx512vl" LIMIT_COUNT 1)
  if(flags_with_avx512)
    list(APPEND disabled HWY_SSE4 HWY_AVX2)
  else()
    list(APPEND disabled HWY_SSE4 HWY_AVX3)
  endif()
endif()
list(JOIN disabled "|" disabled)
target_compile_definitions(aclgrad_plain_settings INTERFACE "HWY_DISABLED_TARGETS=(${disabled})")

set(ACLGRAD_SANITIZER_FLAGS "")
if(ACLGRAD_SANITIZE STREQUAL "address")
  # no enum: by contract tensors keep unknown dtypes and formats, and the operators refuse them.
  set(ACLGRAD_SANITIZER_FLAGS -fsanitize=address,undefined -fno-sanitize=enum
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(ACLGRAD_SANITIZE STREQUAL "thread")
  set(ACLGRAD_SANITIZER_FLAGS -fsanitize=thread -fno-omit-frame-pointer)
  # The packaged oneTBB is not instrumented: its loops give false reports, and a suppression would
  # hide ours. parallel.h then runs on plain threads.
  target_compile_definitions(aclgrad_settings INTERFACE ACLGRAD_THREADS_TWIN=1)
elseif(NOT ACLGRAD_SANITIZE STREQUAL "none")
  message(FATAL_ERROR "ACLGRAD_SANITIZE must be none, address or thread, is ${ACLGRAD_SANITIZE}")
endif()
if(ACLGRAD_SANITIZER_FLAGS)
  # Instrumented code takes minutes at -O2, and looks uninitialised to g++ 12 (std::regex and
  # std::function, for instance).
  target_compile_options(aclgrad_settings INTERFACE ${ACLGRAD_SANITIZER_FLAGS}
    $<$<CONFIG:Release>:-O1;-g1> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(aclgrad_settings INTERFACE ${ACLGRAD_SANITIZER_FLAGS})
endif()

# Kernels are compiled with -O3 in every build that is not sanitized: -O2 doubles the time of short
# rows. AddressSanitizer sees every address that they touch, so UndefinedBehaviorSanitizer need not
# judge the pointers before that: its four checks of them double the minutes of compiling.
set(ACLGRAD_KERNEL_OPTIONS "")
if(ACLGRAD_SANITIZE STREQUAL "none")
  set(ACLGRAD_KERNEL_OPTIONS -O3)
else()
  if(ACLGRAD_SANITIZE STREQUAL "address")
    # Kernels' locals are registers, until a check of their scope gives each an address: the longest
    # compile of this build, LayerNormBackward's, then takes ten minutes in place of four.
    # The frames that g++ 12 keeps apart to find uses after a return are aligned to 32 bytes (its bug
    # 110027), and AVX-512 stores of 64 fault there.
    set(ACLGRAD_KERNEL_OPTIONS -fno-sanitize=null,alignment,object-size,pointer-overflow
      -fno-sanitize-address-use-after-scope
      "$<$<CXX_COMPILER_ID:GNU>:--param=asan-use-after-return=0>")
  endif()
  # g++'s checks in place and its analysis of what their branches point to take two thirds of the
  # minutes of compiling unrolled kernels (LayerNormBackward: 7.5, and 3.6 so).
  list(APPEND ACLGRAD_KERNEL_OPTIONS
    "$<$<CXX_COMPILER_ID:GNU>:--param=asan-instrumentation-with-call-threshold=0;-fno-tree-pta>")
endif()

function(hide_symbols target)
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden
    C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
endfunction()

function(add_aclgrad_library name)
  add_library(${name} SHARED ${ARGN})
  add_library(aclgrad::${name} ALIAS ${name})
  hide_symbols(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  # aclgrad_settings is for our own compile only; consumers are plain C++11 or C11 programs.
  target_link_libraries(${name} PUBLIC aclgrad_headers PRIVATE $<BUILD_INTERFACE:aclgrad_settings>)
  # --no-as-needed: a program may look up aclCreateTensor on the handle of libopapi, so the
  # dependency must stand in the file. nodelete: worker threads must not lose their code by dlclose.
  target_link_options(${name} PRIVATE
    LINKER:--no-as-needed
    LINKER:-z,nodelete
    LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/private.map
    $<$<STREQUAL:${ACLGRAD_SANITIZE},none>:LINKER:-z,defs>)
  set_target_properties(${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib64
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/private.map
    BUILD_RPATH_USE_ORIGIN ON
    INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${name} EXPORT aclgradTargets LIBRARY DESTINATION lib64)
endfunction()

# add_library_alias(alias target): the alias' file name as a symbolic link, in build and install.
function(add_library_alias alias target)
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E create_symlink lib${target}.so
            ${PROJECT_BINARY_DIR}/lib64/lib${alias}.so
    VERBATIM)
  install(FILES ${PROJECT_BINARY_DIR}/lib64/lib${alias}.so DESTINATION lib64)
endfunction()
