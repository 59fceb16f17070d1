// SPDX-License-Identifier: Apache-2.0
// The C functions on arrays and lists, and the reading of arrays by operators.
#include "tensor/boundary.h"
#include "tensor/objects.h"
#include "tensor/operand.h"
#include "tensor/tensor.h"

namespace aclgrad {

constinit HandleTable<IntArray> int_arrays{Kind::kIntArray};
constinit HandleTable<FloatArray> float_arrays{Kind::kFloatArray};
constinit HandleTable<BoolArray> bool_arrays{Kind::kBoolArray};
constinit HandleTable<TensorList> tensor_lists{Kind::kTensorList};
constinit HandleTable<ScalarList> scalar_lists{Kind::kScalarList};

namespace {

template <class T>
void* create_array(HandleTable<HostArray<T>>& table, const T* value, uint64_t size) {
  return table.create(value, value == nullptr ? 0 : size);
}

// A list of live members only; null after a message otherwise.
template <class Member>
void* create_list(const char* function, HandleTable<HostArray<const void*>>& table,
                  const void* const* value, uint64_t size, HandleTable<Member>& members,
                  Kind member_kind) {
  const uint64_t count = value == nullptr ? 0 : size;
  if (count > handle::kMaxSlots) {
    fail(ACL_ERROR_BAD_ALLOC, "%s: size is %llu; expected at most %llu members", function,
         static_cast<unsigned long long>(count),
         static_cast<unsigned long long>(handle::kMaxSlots));
    return nullptr;
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (members.alive(value[i])) continue;
    fail(kParamInvalid, "%s: value[%llu] is %s; expected a live handle of %s", function,
         static_cast<unsigned long long>(i), handle::describe(value[i], member_kind),
         handle::kind_name(handle::tag(member_kind)));
    return nullptr;
  }
  return table.create(value, count);
}

// Members that the program destroyed by itself are passed over.
template <class Member>
Status destroy_list(const char* function, HandleTable<HostArray<const void*>>& table, Kind kind,
                    const void* list, HandleTable<Member>& members) {
  return guarded(function, ACL_ERROR_BAD_ALLOC, [&]() -> Status {
    if (list == nullptr) return kOk;
    const auto pin = table.pin(list);
    // Of two threads that destroy one list, only the one that ends the handle ends the members.
    if (!pin || !table.destroy(list)) {
      return refuse_handle(function, "array", list, kind, kParamInvalid);
    }
    for (uint64_t i = 0; i < pin->size; ++i) members.destroy(pin->values[i]);
    return kOk;
  });
}

template <class T>
Status get_size(const char* function, const char* parameter, HandleTable<HostArray<T>>& table,
                Kind kind, const void* array, uint64_t* size) {
  return with_object(function, parameter, table, kind, array,
                     [&](const HostArray<T>& object) -> Status {
                       if (size == nullptr) return refuse_null(function, "size", kParamNullptr);
                       *size = object.size;
                       return kOk;
                     });
}

}  // namespace

extern "C" {

Status aclgrad_read_int_array(const char* op, const char* name, const aclIntArray* array,
                              IntEntries& out) {
  out.clear();
  if (array == nullptr) return kOk;
  const auto pin = int_arrays.pin(array);
  if (!pin) return refuse_handle(op, name, array, Kind::kIntArray, kParamInvalid);
  out.assign(pin->values.get(), pin->size);
  return kOk;
}

Status aclgrad_read_bool_array(const char* op, const char* name, const aclBoolArray* array,
                               BoolEntries& out) {
  out.clear();
  if (array == nullptr) return kOk;
  const auto pin = bool_arrays.pin(array);
  if (!pin) return refuse_handle(op, name, array, Kind::kBoolArray, kParamInvalid);
  for (uint64_t i = 0; i < pin->size; ++i) out.push_back(pin->values[i] != 0);
  return kOk;
}

}  // extern "C"
}  // namespace aclgrad

using namespace aclgrad;

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  return guarded_creation<aclIntArray>(__func__,
                                       [&] { return create_array(int_arrays, value, size); });
}

aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  return guarded_creation<aclFloatArray>(__func__,
                                         [&] { return create_array(float_arrays, value, size); });
}

aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  return guarded_creation<aclBoolArray>(__func__, [&] {
    return create_array(bool_arrays, reinterpret_cast<const uint8_t*>(value), size);
  });
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  return guarded_creation<aclTensorList>(__func__, [&] {
    return create_list("aclCreateTensorList", tensor_lists,
                       reinterpret_cast<const void* const*>(value), size, tensors, Kind::kTensor);
  });
}

aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  return guarded_creation<aclScalarList>(__func__, [&] {
    return create_list("aclCreateScalarList", scalar_lists,
                       reinterpret_cast<const void* const*>(value), size, scalars, Kind::kScalar);
  });
}

aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
  return destroy_object(__func__, "array", int_arrays, Kind::kIntArray, array);
}

aclnnStatus aclDestroyFloatArray(const aclFloatArray* array) {
  return destroy_object(__func__, "array", float_arrays, Kind::kFloatArray, array);
}

aclnnStatus aclDestroyBoolArray(const aclBoolArray* array) {
  return destroy_object(__func__, "array", bool_arrays, Kind::kBoolArray, array);
}

aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
  return destroy_list(__func__, tensor_lists, Kind::kTensorList, array, tensors);
}

aclnnStatus aclDestroyScalarList(const aclScalarList* array) {
  return destroy_list(__func__, scalar_lists, Kind::kScalarList, array, scalars);
}

aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size) {
  return get_size(__func__, "array", int_arrays, Kind::kIntArray, array, size);
}

aclnnStatus aclGetFloatArraySize(const aclFloatArray* array, uint64_t* size) {
  return get_size(__func__, "array", float_arrays, Kind::kFloatArray, array, size);
}

aclnnStatus aclGetBoolArraySize(const aclBoolArray* array, uint64_t* size) {
  return get_size(__func__, "array", bool_arrays, Kind::kBoolArray, array, size);
}

aclnnStatus aclGetTensorListSize(const aclTensorList* tensorList, uint64_t* size) {
  return get_size(__func__, "tensorList", tensor_lists, Kind::kTensorList, tensorList, size);
}

aclnnStatus aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size) {
  return get_size(__func__, "scalarList", scalar_lists, Kind::kScalarList, scalarList, size);
}
