// SPDX-License-Identifier: Apache-2.0
// The C functions on tensors and scalars.
#include "base/dtype.h"
#include "tensor/boundary.h"
#include "tensor/objects.h"
#include "tensor/tensor.h"

namespace aclgrad {

constinit HandleTable<Scalar> scalars{Kind::kScalar};

namespace {

constexpr uint64_t kMostDims = uint64_t{1} << 20;

Status check_dims(const char* function, const char* parameter, const char* count_name,
                  const int64_t* dims, uint64_t count) {
  if (count > kMostDims) {
    return fail(kParamInvalid, "%s: %s is %llu; expected at most %llu", function, count_name,
                static_cast<unsigned long long>(count), static_cast<unsigned long long>(kMostDims));
  }
  if (dims == nullptr && count > 0) {
    return fail(kParamNullptr, "%s: %s is null while %s is %llu; expected that many sizes",
                function, parameter, count_name, static_cast<unsigned long long>(count));
  }
  return kOk;
}

Status check_arguments(const char* function, const TensorArguments& arguments) {
  if (const Status status =
          check_dims(function, "viewDims", "viewDimsNum", arguments.dims, arguments.rank)) {
    return status;
  }
  return check_dims(function, "storageDims", "storageDimsNum", arguments.storage_dims,
                    arguments.storage_rank);
}

Status get_list(const char* function, const aclTensor* tensor, Tensor::List list,
                const char* list_name, const char* count_name, int64_t** values, uint64_t* count) {
  return with_object(function, "tensor", tensors, Kind::kTensor, tensor,
                     [&](const Tensor& object) -> Status {
                       if (values == nullptr) {
                         return refuse_null(function, list_name, kParamNullptr);
                       }
                       if (count == nullptr) {
                         return refuse_null(function, count_name, kParamNullptr);
                       }
                       *values = object.copy(list, *count);
                       return kOk;
                     });
}

// Calls read(object) for the value that `out` receives.
template <class T, class Read>
Status get_value(const char* function, const aclTensor* tensor, const char* name, T* out,
                 Read&& read) {
  return with_object(function, "tensor", tensors, Kind::kTensor, tensor,
                     [&](const Tensor& object) -> Status {
                       if (out == nullptr) return refuse_null(function, name, kParamNullptr);
                       *out = read(object);
                       return kOk;
                     });
}

}  // namespace
}  // namespace aclgrad

using namespace aclgrad;

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType,
                           const int64_t* stride, int64_t offset, aclFormat format,
                           const int64_t* storageDims, uint64_t storageDimsNum, void* tensorData) {
  return guarded_creation<aclTensor>(__func__, [&]() -> void* {
    const TensorArguments arguments{viewDims, viewDimsNum, dataType,       stride,    offset,
                                    format,   storageDims, storageDimsNum, tensorData};
    if (check_arguments("aclCreateTensor", arguments) != kOk) return nullptr;
    return tensors.create(arguments);
  });
}

aclnnStatus aclInitTensor(aclTensor* tensor, const int64_t* viewDims, uint64_t viewDimsNum,
                          aclDataType dataType, const int64_t* stride, int64_t offset,
                          aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                          void* tensorData) {
  return with_object(
      __func__, "tensor", tensors, Kind::kTensor, tensor, [&](Tensor& object) -> Status {
        const TensorArguments arguments{viewDims, viewDimsNum, dataType,       stride,    offset,
                                        format,   storageDims, storageDimsNum, tensorData};
        if (const Status status = check_arguments("aclInitTensor", arguments)) return status;
        object.describe(arguments);
        return kOk;
      });
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  return destroy_object(__func__, "tensor", tensors, Kind::kTensor, tensor);
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  return guarded_creation<aclScalar>(__func__, [&]() -> void* {
    const size_t size = dtype_size(dataType);
    if (value == nullptr) {
      refuse_null("aclCreateScalar", "value", kParamNullptr);
      return nullptr;
    }
    if (size == 0) {
      fail(kParamInvalid,
           "aclCreateScalar: dataType is %s (%d); expected one with a whole number of bytes",
           dtype_name(dataType), static_cast<int>(dataType));
      return nullptr;
    }
    return scalars.create(value, size, dataType);
  });
}

aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
  return destroy_object(__func__, "scalar", scalars, Kind::kScalar, scalar);
}

aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims, uint64_t* viewDimsNum) {
  return get_list(__func__, tensor, Tensor::List::kDims, "viewDims", "viewDimsNum", viewDims,
                  viewDimsNum);
}

aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims,
                               uint64_t* storageDimsNum) {
  return get_list(__func__, tensor, Tensor::List::kStorageDims, "storageDims", "storageDimsNum",
                  storageDims, storageDimsNum);
}

aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue,
                              uint64_t* stridesNum) {
  return get_list(__func__, tensor, Tensor::List::kStrides, "stridesValue", "stridesNum",
                  stridesValue, stridesNum);
}

aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset) {
  return get_value(__func__, tensor, "offset", offset,
                   [](const Tensor& object) { return object.offset(); });
}

aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format) {
  return get_value(__func__, tensor, "format", format,
                   [](const Tensor& object) { return object.format(); });
}

aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType) {
  return get_value(__func__, tensor, "dataType", dataType,
                   [](const Tensor& object) { return object.dtype(); });
}

aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* addr) {
  return with_object(__func__, "tensor", tensors, Kind::kTensor, tensor, [&](Tensor& object) {
    object.set_data(addr);
    return kOk;
  });
}

aclnnStatus aclGetRawTensorAddr(const aclTensor* tensor, void** addr) {
  return get_value(__func__, tensor, "addr", addr,
                   [](const Tensor& object) { return object.data(); });
}
