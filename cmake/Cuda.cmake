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

set(ACLGRAD_HAS_CUDA false)
if(ACLGRAD_CUDA STREQUAL "EMULATED")
  set(ACLGRAD_HAS_CUDA true)
elseif(ACLGRAD_CUDA STREQUAL "ON" OR
    (ACLGRAD_CUDA STREQUAL "AUTO" AND ACLGRAD_SANITIZE STREQUAL "none" AND NOT CMAKE_CROSSCOMPILING))
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES ${ACLGRAD_CUDA_ARCHITECTURES})
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(ACLGRAD_HAS_CUDA true)
    message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: kernels for ${ACLGRAD_CUDA_ARCHITECTURES}")
  elseif(ACLGRAD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ACLGRAD_CUDA is ON, and there is no nvcc; its packages are cuda-nvcc and "
      "cuda-cudart-dev of NVIDIA's repository, or nvidia-cuda-toolkit of Debian's")
  else()
    message(STATUS "No nvcc: the libraries will have no CUDA (ACLGRAD_CUDA=OFF does not look for it)")
  endif()
endif()
configure_file(${PROJECT_SOURCE_DIR}/src/base/config.h.in
  ${PROJECT_BINARY_DIR}/src/base/config.h @ONLY)
target_include_directories(aclgrad_settings INTERFACE ${PROJECT_BINARY_DIR}/src)

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
    # CUDA counts threads in int, and its pragmas are nvcc's.
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX
      COMPILE_OPTIONS "-Wno-unknown-pragmas;-Wno-sign-conversion")
  else()
    # CMake 3.25 knows of no C++20 in CUDA.
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -std=c++20)
  endif()
endfunction()
