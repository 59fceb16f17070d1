// SPDX-License-Identifier: Apache-2.0
#include "answers.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>

#include "faults.h"

using emulated::current_device;
using emulated::sticky;

namespace {

struct Fault {
  std::mutex mutex;
  cudaError_t error = cudaSuccess;
  std::string text;
};
Fault& fault_of(int device) {
  static auto* const kFaults = new Fault[emulated::kMostDevices];
  return kFaults[device];
}

thread_local cudaError_t last_error = cudaSuccess;

std::atomic<int> calls_to_failure{0};
std::atomic<int> more_failures{0};  // behind the first
std::atomic<cudaError_t> wanted_error{cudaSuccess};
std::atomic<int> launch_count{0};  // since a test said what fails
std::atomic<int> launches_before{0};

bool sticks(cudaError_t error) {
  constexpr int kNumbers[] = {700, 703, 719, 721, 810, 911, 999};
  return std::find(std::begin(kNumbers), std::end(kNumbers), int{error}) != std::end(kNumbers);
}

}  // namespace

namespace emulated {

cudaError_t sticky(int device) {
  Fault& fault = fault_of(device);
  const std::lock_guard lock(fault.mutex);
  return fault.error;
}
void set_fault(int device, cudaError_t error, const std::string& text) {
  Fault& fault = fault_of(device);
  const std::lock_guard lock(fault.mutex);
  if (fault.error != cudaSuccess) return;
  fault.error = error;
  fault.text = text;
}
void forget_fault(int device) {
  Fault& fault = fault_of(device);
  const std::lock_guard lock(fault.mutex);
  fault.error = cudaSuccess;
  fault.text.clear();
}

cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t answer_first() {
  need_context();
  if (calls_to_failure.load() > 0 && calls_to_failure.fetch_sub(1) == 1) {
    const cudaError_t error = wanted_error.load();
    launches_before = launch_count.load();
    if (more_failures.load() > 0) {
      --more_failures;
      calls_to_failure = 1;
    }
    if (sticks(error)) set_fault(current_device(), error, "wanted by a test");
    return noted(error);
  }
  return noted(sticky());
}

void fail_call(int call, cudaError_t error) { fail_calls(call, 1, error); }
void fail_calls(int call, int count, cudaError_t error) {
  wanted_error = error;
  launch_count = 0;
  more_failures = count - 1;
  calls_to_failure = call;
}
bool call_failed() { return calls_to_failure.load() <= 0; }
int launches() { return launch_count.load(); }
int launches_before_failure() { return launches_before.load(); }
void count_launch() { ++launch_count; }

}  // namespace emulated

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    default:
      return "cudaError";
  }
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error != cudaErrorIllegalAddress && error != cudaErrorMisalignedAddress &&
      error != cudaErrorLaunchFailure) {
    return cudaGetErrorName(error);
  }
  thread_local std::string text;
  Fault& fault = fault_of(current_device());
  const std::lock_guard lock(fault.mutex);
  text = fault.text;
  return text.c_str();
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t error = sticky();
  return error != cudaSuccess ? error : last_error;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

}  // extern "C"
