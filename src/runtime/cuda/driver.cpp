// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/driver.h"

namespace aclgrad::cuda {
namespace {

// In this version of CUDA all of them have the form that is written here.
[[maybe_unused]] constexpr unsigned kVersion = 11070;

template <class Function>
void look_up(const char* name, Function& function) {
  void* found = nullptr;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, nullptr);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault);
#endif
  if (error != cudaSuccess) {
    cudaGetLastError();
    return;
  }
  function = reinterpret_cast<Function>(found);
}

Driver look_up_all() {
  Driver functions{};
  look_up("cuStreamWaitValue32", functions.stream_wait_value);
  look_up("cuCtxGetCurrent", functions.current_context);
  look_up("cuCtxSetCurrent", functions.set_current_context);
  return functions;
}

}  // namespace

const Driver& driver() noexcept {
  static const Driver kFunctions = look_up_all();
  return kFunctions;
}

}  // namespace aclgrad::cuda
