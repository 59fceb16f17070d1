// SPDX-License-Identifier: Apache-2.0
#include "runtime/services.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "runtime/callback.h"
#include "runtime/memory.h"
#include "runtime/settings.h"
#include "runtime/stream_registry.h"

namespace aclgrad {
namespace {

// In front of scratch memory, to know its size when it is freed.
constexpr size_t kScratchHeader = 64;

// Runs work for a caller that waits, and keeps its data error for that caller alone.
class BlockingWork final : public Work {
 public:
  BlockingWork(std::unique_ptr<Work> inner, std::shared_ptr<TaskErrors> errors)
      : inner_(std::move(inner)), errors_(std::move(errors)) {}
  void run(DataErrors&) noexcept override {
    inner_->run(*errors_);
    inner_.reset();
  }
  Status submit(const char* function, DeviceQueue& queue) override {
    return inner_->submit(function, queue);
  }
  void finish(DataErrors& errors) noexcept override { inner_->finish(errors); }
  DataErrors* own_errors() noexcept override { return errors_.get(); }

 private:
  std::unique_ptr<Work> inner_;
  std::shared_ptr<TaskErrors> errors_;
};

// The status of phase two for what the device answered: its own words are in the message.
Status as_phase_two(Status status) {
  const bool memory = status == ACL_ERROR_RT_MEMORY_ALLOCATION || status == ACL_ERROR_BAD_ALLOC;
  return status == kOk || memory ? status : kRuntimeError;
}

Status refuse_ended(const char* function) {
  return fail(kRuntimeError,
              "%s: the stream takes no more work, it is being destroyed or the process is ending",
              function);
}

Status run_blocking(const char* function, Stream& stream, int32_t device,
                    std::unique_ptr<Work> work, AddressUse* use) {
  if (const Status status = callbacks::check_not_held(function, stream, kRuntimeError)) {
    return status;
  }
  auto errors = std::make_shared<TaskErrors>();
  auto blocking = std::make_unique<BlockingWork>(std::move(work), errors);
  const uint64_t sequence = stream.enqueue(function, blocking.release());
  if (use != nullptr) use->end();
  if (sequence == 0) return as_phase_two(stream.refusal(function, kRuntimeError));
  if (stream.wait(sequence, Deadline::never(), true) == Wait::kAbandoned) {
    return refuse_ended(function);
  }
  if (const Status status = backend().check(function, device)) return as_phase_two(status);
  if (!errors->any()) return kOk;
  const std::string message = errors->take();  // begins with the operator's name
  if (!message.empty()) return fail(kRuntimeError, "%s", message.c_str());
  return fail(kRuntimeError, "%s: a data error was found, and no memory for its description",
              function);
}

// The stream of phase two, whose status for a dead handle is an operator's.
StreamTable::Pin resolve(const char* function, aclrtStream stream, Status& refusal) {
  StreamTable::Pin pin = streams::resolve(function, stream, kParamInvalid, refusal);
  if (refusal == ACL_ERROR_RT_AICORE_EXCEPTION) refusal = kRuntimeError;  // the device has failed
  return pin;
}

}  // namespace

extern "C" {

Allocation aclgrad_find_allocation(const void* address) noexcept { return memory::find(address); }

Status aclgrad_check_stream(const char* function, aclrtStream stream) noexcept {
  Status refusal = aclgrad_check_process(function);
  if (refusal == kOk) resolve(function, stream, refusal);
  return refusal;
}

size_t aclgrad_first_out_of_reach(aclrtStream handle, const void* const* addresses,
                                  size_t count) noexcept {
  if (backend().devices() < 2) return count;
  Status refusal = kOk;
  const StreamTable::Pin pin = resolve("", handle, refusal);
  if (!pin) return count;
  const auto out_of_reach = [&](const void* address) {
    return address != nullptr && !backend().reaches(pin->device, address);
  };
  return static_cast<size_t>(std::find_if(addresses, addresses + count, out_of_reach) - addresses);
}

Status aclgrad_enqueue(const char* function, aclrtStream handle, Work* work,
                       AddressUse* use) noexcept {
  std::unique_ptr<Work> owned(work);
  Status refusal = aclgrad_check_process(function);
  if (refusal != kOk) return refusal;
  const StreamTable::Pin pin = resolve(function, handle, refusal);
  if (!pin) return refusal;
  Stream& stream = *pin->stream;
  if (settings().launch_blocking) [[unlikely]] {
    return guarded(function, ACL_ERROR_BAD_ALLOC, [&] {
      return run_blocking(function, stream, pin->device, std::move(owned), use);
    });
  }
  if (stream.enqueue(function, owned.release()) != 0) return kOk;
  return as_phase_two(stream.refusal(function, kRuntimeError));
}

bool aclgrad_has_device_queues() noexcept { return backend().has_queues(); }

void aclgrad_expect_work() noexcept { backend().expect_work(); }

void aclgrad_make_room() noexcept { backend().trim(); }

size_t aclgrad_begin_use() noexcept { return memory::begin_use(); }
void aclgrad_end_use(size_t slot) noexcept { memory::end_use(slot); }

void* aclgrad_allocate_scratch(size_t bytes) noexcept {
  size_t whole = 0;
  if (backend().has_queues()) return nullptr;
  if (__builtin_add_overflow(bytes, kScratchHeader, &whole)) return nullptr;
  Shortage shortage;
  void* const memory = backend().allocate(0, MemorySpace::kDevice, whole, shortage);
  if (memory == nullptr) return nullptr;
  *static_cast<size_t*>(memory) = whole;
  return static_cast<char*>(memory) + kScratchHeader;
}

void aclgrad_free_scratch(void* memory) noexcept {
  if (memory == nullptr) return;
  char* const block = static_cast<char*>(memory) - kScratchHeader;
  backend().release(MemorySpace::kDevice, block, *reinterpret_cast<size_t*>(block));
}

}  // extern "C"

}  // namespace aclgrad
