# SPDX-License-Identifier: Apache-2.0
# ACLGRAD_CUDA: AUTO takes CUDA where nvcc is found, ON must have it, OFF leaves it out, EMULATED
# compiles the same sources for the host against tests/cuda/emulated. Sets ACLGRAD_HAS_CUDA.
#
# add_cuda_kernels(library sources...): .cu files that become part of a library; nothing without CUDA.
# use_cuda_runtime(library): C++ sources of it may include cuda_runtime.h.

set(ACLGRAD_CUDA AUTO CACHE STRING "AUTO, ON, OFF, or EMULATED (for tests)")
set_property(CACHE ACLGRAD_CUDA PROPERTY STRINGS AUTO ON OFF EMULATED)
if(NOT ACLGRAD_CUDA MATCHES "^(AUTO|ON|OFF|EMULATED)$")
  message(FATAL_ERROR "ACLGRAD_CUDA must be AUTO, ON, OFF or EMULATED, is ${ACLGRAD_CUDA}")
endif()

# Code for each of these, and PTX of the last one for what comes later.
set(ACLGRAD_CUDA_ARCHITECTURES 80-real 90-real 100 CACHE STRING "As in CMAKE_CUDA_ARCHITECTURES")

# The first nvcc that knows C++20 and sm_100.
set(ACLGRAD_LEAST_NVCC 12.8)

# Sets CMAKE_CUDA_COMPILER; where it is of no use, `reason` to why, in words.
function(find_usable_nvcc reason)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)  # it may have been installed since it was looked for
  endif()
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(${reason} "there is no nvcc that works (in PATH, or as CUDACXX names it)" PARENT_SCOPE)
    return()
  endif()
  # Asked before the language is enabled: CMake ends where a compiler does not know an architecture.
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version
    OUTPUT_VARIABLE answer ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT answer MATCHES "release ([0-9]+[.][0-9]+)")
    set(${reason} "${CMAKE_CUDA_COMPILER} does not say its version as nvcc does" PARENT_SCOPE)
    return()
  endif()
  set(version ${CMAKE_MATCH_1})
  if(version VERSION_LESS ACLGRAD_LEAST_NVCC)
    set(${reason} "nvcc ${version} (${CMAKE_CUDA_COMPILER}) is older than ${ACLGRAD_LEAST_NVCC}"
      PARENT_SCOPE)
  endif()
endfunction()

set(ACLGRAD_HAS_CUDA false)
if(ACLGRAD_CUDA STREQUAL "EMULATED")
  set(ACLGRAD_HAS_CUDA true)
elseif(NOT ACLGRAD_CUDA STREQUAL "OFF")
  set(no_cuda "")
  if(ACLGRAD_CUDA STREQUAL "AUTO" AND NOT ACLGRAD_SANITIZE STREQUAL "none")
    set(no_cuda "this is a build with a sanitizer")
  elseif(ACLGRAD_CUDA STREQUAL "AUTO" AND CMAKE_CROSSCOMPILING)
    set(no_cuda "this is a cross build")
  else()
    find_usable_nvcc(no_cuda)
  endif()
  if(NOT no_cuda)
    set(CMAKE_CUDA_ARCHITECTURES ${ACLGRAD_CUDA_ARCHITECTURES})
    enable_language(CUDA)
    find_package(CUDAToolkit)
    if(NOT TARGET CUDA::cudart_static)
      set(no_cuda "the CUDA runtime (cudart_static) is not there")
    endif()
  endif()
  if(NOT no_cuda)
    set(ACLGRAD_HAS_CUDA true)
    message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: kernels for ${ACLGRAD_CUDA_ARCHITECTURES}")
  elseif(ACLGRAD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ACLGRAD_CUDA is ON, and ${no_cuda}; expected nvcc ${ACLGRAD_LEAST_NVCC} or "
      "newer: packages such as cuda-nvcc-13-0 and cuda-cudart-dev-13-0 of NVIDIA's repository, and "
      "/usr/local/cuda/bin in PATH")
  else()
    message(STATUS "No CUDA in the libraries: ${no_cuda} (ACLGRAD_CUDA=OFF does not look for it)")
  endif()
endif()
configure_file(${PROJECT_SOURCE_DIR}/src/base/config.h.in
  ${PROJECT_BINARY_DIR}/src/base/config.h @ONLY)
target_include_directories(aclgrad_plain_settings INTERFACE ${PROJECT_BINARY_DIR}/src)

if(ACLGRAD_CUDA STREQUAL "EMULATED")
  add_subdirectory(tests/cuda/emulated)
endif()

function(use_cuda_runtime library)
  if(ACLGRAD_CUDA STREQUAL "EMULATED")
    target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:emulated_cuda>)
  else()
    target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:CUDA::cudart_static>)
    # What is in the archive is the library's own affair; it looks for the driver when it is called.
    target_link_options(${library} PRIVATE LINKER:--exclude-libs,ALL)
  endif()
endfunction()

# CUDA counts threads in int, its pragmas are nvcc's, and a GPU refuses accesses that are not aligned
# (tests/cuda/emulated/fibers.cpp has what is called then).
set(ACLGRAD_EMULATED_OPTIONS -O1 -g1 -Wno-unknown-pragmas -Wno-sign-conversion -fsanitize=alignment)

function(add_cuda_kernels library)
  if(NOT ACLGRAD_HAS_CUDA)
    return()
  endif()
  set(kernels ${library}_cuda)
  if(NOT TARGET ${kernels})
    add_library(${kernels} OBJECT)
    hide_symbols(${kernels})
    target_include_directories(${kernels} PRIVATE
      ${PROJECT_SOURCE_DIR}/src ${PROJECT_BINARY_DIR}/src)
    target_link_libraries(${kernels} PRIVATE aclgrad_headers)
    if(ACLGRAD_CUDA STREQUAL "EMULATED")
      target_link_libraries(${kernels} PRIVATE aclgrad_settings emulated_cuda)
    else()
      # As in aclgrad_settings: nothing is fused that the source does not fuse.
      target_compile_options(${kernels} PRIVATE -fmad=false --expt-relaxed-constexpr
        -Xcompiler=-Wall,-ffp-contract=off $<$<BOOL:${ACLGRAD_WERROR}>:-Werror=all-warnings>)
      set_target_properties(${kernels} PROPERTIES CUDA_VISIBILITY_PRESET hidden CUDA_EXTENSIONS ON)
    endif()
    target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:${kernels}>)
    use_cuda_runtime(${library})
    set_target_properties(${library} PROPERTIES LINKER_LANGUAGE CXX)
  endif()
  target_sources(${kernels} PRIVATE ${ARGN})
  if(ACLGRAD_CUDA STREQUAL "EMULATED")
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX
      COMPILE_OPTIONS "${ACLGRAD_EMULATED_OPTIONS}")
  else()
    # CMake 3.25 knows of no C++20 in CUDA.
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -std=c++20)
  endif()
endfunction()
