// SPDX-License-Identifier: Apache-2.0
// The C boundary: memory and data buffers.
#include <new>

#include "acl/acl.h"
#include "base/handle_table.h"
#include "base/status.h"
#include "runtime/api.h"
#include "runtime/backend.h"
#include "runtime/context.h"
#include "runtime/memory.h"

namespace aclgrad {
namespace {

struct DataBuffer {
  void* data = nullptr;
  size_t size = 0;
};
constinit HandleTable<DataBuffer> data_buffers{Kind::kDataBuffer};

Status allocate(const char* function, const char* name, MemorySpace space, size_t size,
                void** out) {
  if (out == nullptr) return null_parameter(function, name);
  if (size == 0) {
    return fail(ACL_ERROR_INVALID_PARAM, "%s: size is 0, expected at least 1", function);
  }
  Status refusal = kOk;
  const ContextTable::Pin context = contexts::require_current(function, refusal);
  if (!context) return refusal;
  if (const Status status = backend().check(function, context->device)) return status;
  try {
    const Status status = memory::allocate(function, context->device, space, size, out);
    if (status == kOk) return kOk;
    // It may have been the first to meet a failure of the device.
    const Status failed = backend().check(function, context->device);
    return failed != kOk ? failed : status;
  } catch (const std::bad_alloc&) {  // none even for the library's notes about the allocation
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "%s: no memory for size, %zu bytes", function,
                size);
  }
}

Status release(const char* function, const char* name, MemorySpace space, void* address) {
  if (address == nullptr) return null_parameter(function, name);
  return memory::release(function, space, address);
}

Status get_data_buffer(const char* function, const aclDataBuffer* handle,
                       HandleTable<DataBuffer>::Pin& pin) {
  pin = data_buffers.pin(handle);
  if (pin) return kOk;
  return fail(handle == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_PARAM_INVALID,
              "%s: dataBuffer %p is %s, expected a live aclDataBuffer", function,
              static_cast<const void*>(handle), handle::describe(handle, Kind::kDataBuffer));
}

}  // namespace
}  // namespace aclgrad

using namespace aclgrad;

extern "C" {

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy) {
  return guarded("aclrtMalloc", ACL_ERROR_BAD_ALLOC, [&] {
    return allocate("aclrtMalloc", "devPtr", MemorySpace::kDevice, size, devPtr);
  });
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy) {
  return guarded("aclrtMallocAlign32", ACL_ERROR_BAD_ALLOC, [&] {
    return allocate("aclrtMallocAlign32", "devPtr", MemorySpace::kDevice, size, devPtr);
  });
}

aclError aclrtFree(void* devPtr) {
  return guarded("aclrtFree", ACL_ERROR_BAD_ALLOC,
                 [&] { return release("aclrtFree", "devPtr", MemorySpace::kDevice, devPtr); });
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return guarded("aclrtMallocHost", ACL_ERROR_BAD_ALLOC, [&] {
    return allocate("aclrtMallocHost", "hostPtr", MemorySpace::kHost, size, hostPtr);
  });
}

aclError aclrtFreeHost(void* hostPtr) {
  return guarded("aclrtFreeHost", ACL_ERROR_BAD_ALLOC,
                 [&] { return release("aclrtFreeHost", "hostPtr", MemorySpace::kHost, hostPtr); });
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  constexpr const char* kName = "aclrtGetMemInfo";
  return guarded(kName, ACL_ERROR_BAD_ALLOC, [number = static_cast<int>(attr), free, total] {
    if (free == nullptr) return null_parameter(kName, "free");
    if (total == nullptr) return null_parameter(kName, "total");
    if (number < ACL_DDR_MEM || number > ACL_MEM_P2P_HUGE1G) {
      return fail(ACL_ERROR_INVALID_PARAM, "%s: attr is %d, expected an aclrtMemAttr", kName,
                  number);
    }
    const int32_t device = contexts::current_device();
    if (const Status status = backend().check(kName, device)) return status;
    MemoryInfo info;
    if (const Status status = backend().memory_info(kName, device, info)) return status;
    *free = info.free;
    *total = info.total;
    return kOk;
  });
}

aclDataBuffer* aclCreateDataBuffer(void* data, size_t size) {
  void* handle = nullptr;
  guarded("aclCreateDataBuffer", ACL_ERROR_BAD_ALLOC, [&] {
    handle = data_buffers.create(DataBuffer{data, size});
    return kOk;
  });
  return static_cast<aclDataBuffer*>(handle);
}

aclError aclDestroyDataBuffer(const aclDataBuffer* dataBuffer) {
  return guarded("aclDestroyDataBuffer", ACL_ERROR_BAD_ALLOC, [&] {
    if (data_buffers.destroy(dataBuffer)) return kOk;
    HandleTable<DataBuffer>::Pin pin;
    return get_data_buffer("aclDestroyDataBuffer", dataBuffer, pin);
  });
}

void* aclGetDataBufferAddr(const aclDataBuffer* dataBuffer) {
  HandleTable<DataBuffer>::Pin pin;
  guarded("aclGetDataBufferAddr", ACL_ERROR_BAD_ALLOC,
          [&] { return get_data_buffer("aclGetDataBufferAddr", dataBuffer, pin); });
  return pin ? pin->data : nullptr;
}

size_t aclGetDataBufferSizeV2(const aclDataBuffer* dataBuffer) {
  HandleTable<DataBuffer>::Pin pin;
  guarded("aclGetDataBufferSizeV2", ACL_ERROR_BAD_ALLOC,
          [&] { return get_data_buffer("aclGetDataBufferSizeV2", dataBuffer, pin); });
  return pin ? pin->size : 0;
}

}  // extern "C"
