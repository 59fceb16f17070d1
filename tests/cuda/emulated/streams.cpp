// SPDX-License-Identifier: Apache-2.0
#include "streams.h"

#include <thread>
#include <vector>

#include "answers.h"
#include "devices.h"

using emulated::answer_first;
using emulated::current_device;
using emulated::need_context;
using emulated::noted;
using emulated::queue;
using emulated::sticky;

namespace {

// Host functions of all streams are called one after the other, as by the one thread that CUDA may
// have for them.
void call_on_host(cudaHostFn_t function, void* data) {
  static auto* const kMutex = new std::mutex;
  const std::lock_guard lock(*kMutex);
  function(data);
}

struct Streams {
  std::mutex mutex;
  std::vector<std::weak_ptr<CUstream_st>> all;
};
Streams& streams() {
  static auto* const kStreams = new Streams;
  return *kStreams;
}
void add_stream(const std::shared_ptr<CUstream_st>& stream) {
  Streams& list = streams();
  const std::lock_guard lock(list.mutex);
  std::erase_if(list.all, [](const std::weak_ptr<CUstream_st>& each) { return each.expired(); });
  list.all.push_back(stream);
}

}  // namespace

namespace emulated {

cudaError_t queue(cudaStream_t stream, std::function<void()> task) {
  if (stream == nullptr || stream->device != current_device()) {
    return noted(cudaErrorInvalidResourceHandle);
  }
  if (const cudaError_t error = answer_first()) return error;
  stream->push(std::move(task));
  return cudaSuccess;
}

void drain(int device) {
  std::vector<std::weak_ptr<CUstream_st>> all;
  {
    const std::lock_guard lock(streams().mutex);
    all = streams().all;
  }
  for (const std::weak_ptr<CUstream_st>& each : all) {
    const std::shared_ptr<CUstream_st> stream = each.lock();
    if (stream != nullptr && stream->device == device) stream->synchronize();
  }
}

}  // namespace emulated

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t error = answer_first()) return error;
  auto made = std::make_shared<CUstream_st>(current_device());
  made->self = made;
  add_stream(made);
  std::thread(&CUstream_st::run, made).detach();
  *stream = made.get();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  // Its work still runs to its end.
  const std::shared_ptr<CUstream_st> last = std::move(stream->self);
  last->close();
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  need_context();
  stream->synchronize();
  return sticky(stream->device);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  need_context();
  if (const cudaError_t error = noted(sticky(stream->device))) return error;
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return queue(stream, [=] { call_on_host(function, data); });
}

}  // extern "C"
