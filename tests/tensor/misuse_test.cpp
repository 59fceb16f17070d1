// SPDX-License-Identifier: Apache-2.0
// Every function of acl_meta.h with every kind of wrong handle, from several threads.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "aclnn/acl_meta.h"
#include "scale_add.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

struct Entry {
  std::string name;
  const char* parameter;
  int null_status;
  int dead_status;
  const void* own_kind;  // a live handle of the right kind; every other kind is wrong
  std::function<aclnnStatus(void*)> call;
};

// Live objects of all kinds.
struct Objects {
  Objects() : x({4}, ACL_FLOAT), out({4}, ACL_FLOAT) {
    const int64_t ints[] = {1};
    const float floats[] = {1};
    const bool bools[] = {true};
    float value = 1;
    scalar = aclCreateScalar(&value, ACL_FLOAT);
    int_array = aclCreateIntArray(ints, 1);
    float_array = aclCreateFloatArray(floats, 1);
    bool_array = aclCreateBoolArray(bools, 1);
    tensor_list = aclCreateTensorList(nullptr, 0);
    scalar_list = aclCreateScalarList(nullptr, 0);
    executor = planned({.x = x.handle(), .out = out.handle()}).executor;
    require(aclSetAclOpExecutorRepeatable(executor), "aclSetAclOpExecutorRepeatable");
    require(aclrtCreateEvent(&event), "aclrtCreateEvent");
  }
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;
  ~Objects() {
    EXPECT_EQ(aclDestroyScalar(scalar), 0);
    EXPECT_EQ(aclDestroyIntArray(int_array), 0);
    EXPECT_EQ(aclDestroyFloatArray(float_array), 0);
    EXPECT_EQ(aclDestroyBoolArray(bool_array), 0);
    EXPECT_EQ(aclDestroyTensorList(tensor_list), 0);
    EXPECT_EQ(aclDestroyScalarList(scalar_list), 0);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
    EXPECT_EQ(aclrtDestroyEvent(event), 0);
  }

  std::vector<void*> all() const {
    return {x.handle(),  scalar,      int_array, float_array, bool_array,
            tensor_list, scalar_list, executor,  event,       stream()};
  }

  Tensor x, out;
  aclScalar* scalar;
  aclIntArray* int_array;
  aclFloatArray* float_array;
  aclBoolArray* bool_array;
  aclTensorList* tensor_list;
  aclScalarList* scalar_list;
  aclOpExecutor* executor;
  aclrtEvent event = nullptr;
};

template <class T>
std::function<aclnnStatus(void*)> destroyer(aclnnStatus (*function)(T*)) {
  return [function](void* handle) { return function(static_cast<T*>(handle)); };
}
template <class T>
std::function<aclnnStatus(void*)> size_getter(aclnnStatus (*function)(const T*, uint64_t*)) {
  return [function](void* handle) {
    uint64_t size = 0;
    return function(static_cast<const T*>(handle), &size);
  };
}
std::function<aclnnStatus(void*)> list_getter(aclnnStatus (*function)(const aclTensor*, int64_t**,
                                                                      uint64_t*)) {
  return [function](void* handle) {
    int64_t* values = nullptr;
    uint64_t size = 0;
    const aclnnStatus status = function(static_cast<const aclTensor*>(handle), &values, &size);
    delete[] values;
    return status;
  };
}
template <class T>
std::function<aclnnStatus(void*)> value_getter(aclnnStatus (*function)(const aclTensor*, T*)) {
  return [function](void* handle) {
    T value{};
    return function(static_cast<const aclTensor*>(handle), &value);
  };
}

using SetAddress = aclnnStatus (*)(aclOpExecutor*, size_t, aclTensor*, void*);
using SetListAddress = aclnnStatus (*)(aclOpExecutor*, size_t, size_t, aclTensorList*, void*);

struct NamedSet {
  const char* name;
  SetAddress function;
};
struct NamedListSet {
  const char* name;
  SetListAddress function;
};
constexpr NamedSet kSets[] = {{"aclSetInputTensorAddr", aclSetInputTensorAddr},
                              {"aclSetOutputTensorAddr", aclSetOutputTensorAddr},
                              {"aclSetTensorAddr", aclSetTensorAddr},
                              {"AclSetInputTensorAddr", AclSetInputTensorAddr},
                              {"AclSetOutputTensorAddr", AclSetOutputTensorAddr},
                              {"AclSetTensorAddr", AclSetTensorAddr}};
constexpr NamedListSet kListSets[] = {
    {"aclSetDynamicInputTensorAddr", aclSetDynamicInputTensorAddr},
    {"aclSetDynamicOutputTensorAddr", aclSetDynamicOutputTensorAddr},
    {"aclSetDynamicTensorAddr", aclSetDynamicTensorAddr},
    {"AclSetDynamicInputTensorAddr", AclSetDynamicInputTensorAddr},
    {"AclSetDynamicOutputTensorAddr", AclSetDynamicOutputTensorAddr},
    {"AclSetDynamicTensorAddr", AclSetDynamicTensorAddr}};

std::vector<Entry> entries(const Objects& objects) {
  const void* tensor = objects.x.handle();
  std::vector<Entry> table = {
      {"aclDestroyTensor", "tensor", 0, 161002, tensor, destroyer(aclDestroyTensor)},
      {"aclDestroyScalar", "scalar", 0, 161002, objects.scalar, destroyer(aclDestroyScalar)},
      {"aclDestroyIntArray", "array", 0, 161002, objects.int_array, destroyer(aclDestroyIntArray)},
      {"aclDestroyFloatArray", "array", 0, 161002, objects.float_array,
       destroyer(aclDestroyFloatArray)},
      {"aclDestroyBoolArray", "array", 0, 161002, objects.bool_array,
       destroyer(aclDestroyBoolArray)},
      {"aclDestroyTensorList", "array", 0, 161002, objects.tensor_list,
       destroyer(aclDestroyTensorList)},
      {"aclDestroyScalarList", "array", 0, 161002, objects.scalar_list,
       destroyer(aclDestroyScalarList)},
      {"aclGetIntArraySize", "array", 161001, 161002, objects.int_array,
       size_getter(aclGetIntArraySize)},
      {"aclGetFloatArraySize", "array", 161001, 161002, objects.float_array,
       size_getter(aclGetFloatArraySize)},
      {"aclGetBoolArraySize", "array", 161001, 161002, objects.bool_array,
       size_getter(aclGetBoolArraySize)},
      {"aclGetTensorListSize", "tensorList", 161001, 161002, objects.tensor_list,
       size_getter(aclGetTensorListSize)},
      {"aclGetScalarListSize", "scalarList", 161001, 161002, objects.scalar_list,
       size_getter(aclGetScalarListSize)},
      {"aclGetViewShape", "tensor", 161001, 161002, tensor, list_getter(aclGetViewShape)},
      {"aclGetStorageShape", "tensor", 161001, 161002, tensor, list_getter(aclGetStorageShape)},
      {"aclGetViewStrides", "tensor", 161001, 161002, tensor, list_getter(aclGetViewStrides)},
      {"aclGetViewOffset", "tensor", 161001, 161002, tensor, value_getter(aclGetViewOffset)},
      {"aclGetFormat", "tensor", 161001, 161002, tensor, value_getter(aclGetFormat)},
      {"aclGetDataType", "tensor", 161001, 161002, tensor, value_getter(aclGetDataType)},
      {"aclGetRawTensorAddr", "tensor", 161001, 161002, tensor, value_getter(aclGetRawTensorAddr)},
      {"aclSetRawTensorAddr", "tensor", 161001, 161002, tensor,
       [](void* handle) { return aclSetRawTensorAddr(static_cast<aclTensor*>(handle), nullptr); }},
      {"aclInitTensor", "tensor", 161001, 161002, tensor,
       [](void* handle) {
         return aclInitTensor(static_cast<aclTensor*>(handle), nullptr, 0, ACL_FLOAT, nullptr, 0,
                              ACL_FORMAT_ND, nullptr, 0, nullptr);
       }},
      {"aclDestroyAclOpExecutor", "executor", 561103, 561000, objects.executor,
       destroyer(aclDestroyAclOpExecutor)},
      {"aclSetAclOpExecutorRepeatable", "executor", 561103, 561000, objects.executor,
       destroyer(aclSetAclOpExecutorRepeatable)},
  };
  aclTensor* const x = objects.x.handle();
  for (const NamedSet& set : kSets) {
    table.push_back(
        {set.name, "executor", 561103, 161002, objects.executor, [set, x](void* handle) {
           return set.function(static_cast<aclOpExecutor*>(handle), 0, x, nullptr);
         }});
    table.push_back({set.name, "tensor", 561103, 161002, tensor, [set, &objects](void* handle) {
                       return set.function(objects.executor, 0, static_cast<aclTensor*>(handle),
                                           nullptr);
                     }});
  }
  for (const NamedListSet& set : kListSets) {
    table.push_back(
        {set.name, "executor", 561103, 161002, objects.executor, [set, &objects](void* handle) {
           return set.function(static_cast<aclOpExecutor*>(handle), 0, 0, objects.tensor_list,
                               nullptr);
         }});
    table.push_back(
        {set.name, "tensors", 561103, 161002, objects.tensor_list, [set, &objects](void* handle) {
           return set.function(objects.executor, 0, 0, static_cast<aclTensorList*>(handle),
                               nullptr);
         }});
  }
  return table;
}

// One destroyed handle of each kind.
std::vector<void*> dead_handles() {
  std::vector<void*> dead;
  const Objects objects;
  dead = objects.all();
  dead.pop_back();  // the stream lives on
  return dead;
}

void expect_all_refused() {
  use_device();
  const std::vector<void*> dead = dead_handles();
  const Objects objects;
  int local = 0;
  std::vector<void*> wrong = {&local, reinterpret_cast<void*>(uintptr_t{1}),
                              reinterpret_cast<void*>(~uintptr_t{0}),
                              reinterpret_cast<void*>(uintptr_t{1} << 63)};
  wrong.insert(wrong.end(), dead.begin(), dead.end());
  const std::vector<void*> live = objects.all();
  wrong.insert(wrong.end(), live.begin(), live.end());
  // The slot and generation of a live tensor under every other tag.
  for (uint64_t tag = 0x80; tag < 0xFF; ++tag) {
    const auto bits = reinterpret_cast<uintptr_t>(objects.x.handle());
    const uintptr_t forged = (bits & ((uint64_t{1} << 56) - 1)) | tag << 56;
    if (forged != bits) wrong.push_back(reinterpret_cast<void*>(forged));
  }
  for (const Entry& entry : entries(objects)) {
    SCOPED_TRACE(entry.name);
    const std::string start = entry.name + ": " + entry.parameter + " is ";
    take_message();
    EXPECT_EQ(entry.call(nullptr), entry.null_status);
    const std::string message = take_message();
    if (entry.null_status != 0) {
      EXPECT_NE(message.find(start + "null"), std::string::npos) << message;
    } else {
      EXPECT_EQ(message, "");
    }
    for (void* handle : wrong) {
      if ((reinterpret_cast<uintptr_t>(handle) >> 56) ==
              (reinterpret_cast<uintptr_t>(entry.own_kind) >> 56) &&
          std::find(dead.begin(), dead.end(), handle) == dead.end()) {
        continue;  // the right kind, and alive or nearly so
      }
      ASSERT_EQ(entry.call(handle), entry.dead_status) << handle;
      const std::string why = take_message();
      ASSERT_NE(why.find(start), std::string::npos) << why;
      ASSERT_NE(why.find("expected a live handle of "), std::string::npos) << why;
    }
  }
}

TEST(Misuse, EveryFunctionRefusesEveryWrongHandle) { expect_all_refused(); }

TEST(Misuse, FromOtherThreadsToo) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) threads.emplace_back(expect_all_refused);
  for (std::thread& thread : threads) thread.join();
}

TEST(Misuse, NullOutPointers) {
  use_device();
  const Objects objects;
  const aclTensor* tensor = objects.x.handle();
  uint64_t size = 0;
  int64_t* values = nullptr;
  const auto refused = [](aclnnStatus status, const char* start) {
    EXPECT_EQ(status, 161001) << start;
    const std::string message = take_message();
    EXPECT_NE(message.find(start), std::string::npos) << message;
  };
  take_message();
  refused(aclGetViewShape(tensor, nullptr, &size), "aclGetViewShape: viewDims is null");
  refused(aclGetViewShape(tensor, &values, nullptr), "aclGetViewShape: viewDimsNum is null");
  refused(aclGetStorageShape(tensor, nullptr, &size), "aclGetStorageShape: storageDims is null");
  refused(aclGetStorageShape(tensor, &values, nullptr),
          "aclGetStorageShape: storageDimsNum is null");
  refused(aclGetViewStrides(tensor, nullptr, &size), "aclGetViewStrides: stridesValue is null");
  refused(aclGetViewStrides(tensor, &values, nullptr), "aclGetViewStrides: stridesNum is null");
  refused(aclGetViewOffset(tensor, nullptr), "aclGetViewOffset: offset is null");
  refused(aclGetFormat(tensor, nullptr), "aclGetFormat: format is null");
  refused(aclGetDataType(tensor, nullptr), "aclGetDataType: dataType is null");
  refused(aclGetRawTensorAddr(tensor, nullptr), "aclGetRawTensorAddr: addr is null");
  refused(aclGetIntArraySize(objects.int_array, nullptr), "aclGetIntArraySize: size is null");
  refused(aclGetFloatArraySize(objects.float_array, nullptr), "aclGetFloatArraySize: size is null");
  refused(aclGetBoolArraySize(objects.bool_array, nullptr), "aclGetBoolArraySize: size is null");
  refused(aclGetTensorListSize(objects.tensor_list, nullptr), "aclGetTensorListSize: size is null");
  refused(aclGetScalarListSize(objects.scalar_list, nullptr), "aclGetScalarListSize: size is null");
  EXPECT_EQ(values, nullptr);
}

TEST(Misuse, ScalarsNeedAValueAndASize) {
  use_device();
  take_message();
  double value = 1;
  EXPECT_EQ(aclCreateScalar(nullptr, ACL_FLOAT), nullptr);
  EXPECT_NE(take_message().find("aclCreateScalar: value is null"), std::string::npos);
  for (const int dtype : {-1, 5, 13, 29, 999}) {
    EXPECT_EQ(aclCreateScalar(&value, static_cast<aclDataType>(dtype)), nullptr) << dtype;
    EXPECT_NE(take_message().find("aclCreateScalar: dataType is "), std::string::npos);
  }
}

TEST(Misuse, HugeMemoryFunctionsAreThereAndCacheFunctionsAreNot) {
  auto* const init =
      reinterpret_cast<int (*)(void*, bool)>(dlsym(RTLD_DEFAULT, "InitHugeMemThreadLocal"));
  ASSERT_NE(init, nullptr);
  EXPECT_EQ(init(nullptr, false), 0);
  for (const char* name : {"UnInitHugeMemThreadLocal", "ReleaseHugeMem"}) {
    auto* const function = reinterpret_cast<void (*)(void*, bool)>(dlsym(RTLD_DEFAULT, name));
    ASSERT_NE(function, nullptr) << name;
    function(nullptr, true);
  }
  for (const char* name : {"PTAGetExecCache", "InitPTACacheThreadLocal", "SetPTAHashKey",
                           "CanUsePTACache", "PTAFindExecCache", "UnInitPTACacheThreadLocal"}) {
    EXPECT_EQ(dlsym(RTLD_DEFAULT, name), nullptr) << name;
  }
}

}  // namespace
}  // namespace aclgrad::test
