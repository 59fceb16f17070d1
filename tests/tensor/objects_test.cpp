// SPDX-License-Identifier: Apache-2.0
// Arrays and lists: what is kept, who owns what; and objects of all kinds that come and go.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "aclnn/aclnn_base.h"
#include "resident.h"
#include "support/device.h"
#include "tensor/operand.h"

namespace aclgrad::test {
namespace {

TEST(Arrays, CopyTheirValues) {
  std::vector<int64_t> ints = {5, -6, 7};
  aclIntArray* array = aclCreateIntArray(ints.data(), ints.size());
  const uint8_t bytes[] = {0, 1, 7};
  aclBoolArray* bools = aclCreateBoolArray(reinterpret_cast<const bool*>(bytes), 3);
  const float values[] = {1.5f, 2.5f};
  aclFloatArray* floats = aclCreateFloatArray(values, 2);
  const std::vector<int64_t> before = ints;
  ints.assign(3, 0);
  IntEntries read;
  EXPECT_EQ(read_int_array("test", "array", array, read), 0);
  EXPECT_EQ(std::vector<int64_t>(read.begin(), read.end()), before);
  BoolEntries flags;
  EXPECT_EQ(read_bool_array("test", "array", bools, flags), 0);
  EXPECT_EQ(std::vector<bool>(flags.begin(), flags.end()), (std::vector<bool>{false, true, true}));
  uint64_t size = 0;
  EXPECT_EQ(aclGetIntArraySize(array, &size), 0);
  EXPECT_EQ(size, 3u);
  EXPECT_EQ(aclGetBoolArraySize(bools, &size), 0);
  EXPECT_EQ(size, 3u);
  EXPECT_EQ(aclGetFloatArraySize(floats, &size), 0);
  EXPECT_EQ(size, 2u);
  EXPECT_EQ(aclDestroyIntArray(array), 0);
  EXPECT_EQ(aclDestroyBoolArray(bools), 0);
  EXPECT_EQ(aclDestroyFloatArray(floats), 0);
}

TEST(Arrays, SizeZeroAndNullAreEmptyArrays) {
  const int64_t ints[] = {1};
  const float floats[] = {1};
  const bool bools[] = {true};
  uint64_t size = 9;
  for (aclIntArray* array : {aclCreateIntArray(ints, 0), aclCreateIntArray(nullptr, 5)}) {
    ASSERT_NE(array, nullptr);
    EXPECT_EQ(aclGetIntArraySize(array, &size), 0);
    EXPECT_EQ(size, 0u);
    EXPECT_EQ(aclDestroyIntArray(array), 0);
  }
  for (aclFloatArray* array : {aclCreateFloatArray(floats, 0), aclCreateFloatArray(nullptr, 5)}) {
    EXPECT_EQ(aclGetFloatArraySize(array, &size), 0);
    EXPECT_EQ(size, 0u);
    EXPECT_EQ(aclDestroyFloatArray(array), 0);
  }
  for (aclBoolArray* array : {aclCreateBoolArray(bools, 0), aclCreateBoolArray(nullptr, 5)}) {
    EXPECT_EQ(aclGetBoolArraySize(array, &size), 0);
    EXPECT_EQ(size, 0u);
    EXPECT_EQ(aclDestroyBoolArray(array), 0);
  }
  for (aclTensorList* list : {aclCreateTensorList(nullptr, 3), aclCreateTensorList(nullptr, 0)}) {
    EXPECT_EQ(aclGetTensorListSize(list, &size), 0);
    EXPECT_EQ(size, 0u);
    EXPECT_EQ(aclDestroyTensorList(list), 0);
  }
  for (aclScalarList* list : {aclCreateScalarList(nullptr, 3), aclCreateScalarList(nullptr, 0)}) {
    EXPECT_EQ(aclGetScalarListSize(list, &size), 0);
    EXPECT_EQ(size, 0u);
    EXPECT_EQ(aclDestroyScalarList(list), 0);
  }
}

TEST(Arrays, WithoutMemoryThereIsNoneAndAMessage) {
  use_device();
  const int64_t one = 1;
  const float value = 1;
  const bool flag = true;
  take_message();
  EXPECT_EQ(aclCreateIntArray(&one, UINT64_MAX / 16), nullptr);
  EXPECT_NE(take_message().find("aclCreateIntArray: out of memory"), std::string::npos);
  EXPECT_EQ(aclCreateFloatArray(&value, UINT64_MAX / 8), nullptr);
  EXPECT_NE(take_message().find("aclCreateFloatArray: out of memory"), std::string::npos);
  EXPECT_EQ(aclCreateBoolArray(&flag, UINT64_MAX / 2), nullptr);
  EXPECT_NE(take_message().find("aclCreateBoolArray: out of memory"), std::string::npos);
}

TEST(Lists, OwnTheirMembers) {
  float value = 2.5f;
  const aclTensor* tensors[2];
  const aclScalar* scalars[2];
  for (int i = 0; i < 2; ++i) {
    tensors[i] =
        aclCreateTensor(nullptr, 0, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
    scalars[i] = aclCreateScalar(&value, ACL_FLOAT);
  }
  aclTensorList* tensor_list = aclCreateTensorList(tensors, 2);
  aclScalarList* scalar_list = aclCreateScalarList(scalars, 2);
  uint64_t size = 0;
  EXPECT_EQ(aclGetTensorListSize(tensor_list, &size), 0);
  EXPECT_EQ(size, 2u);
  EXPECT_EQ(aclGetScalarListSize(scalar_list, &size), 0);
  EXPECT_EQ(size, 2u);
  // A member that is gone already is no error.
  EXPECT_EQ(aclDestroyTensor(tensors[0]), 0);
  EXPECT_EQ(aclDestroyScalar(scalars[1]), 0);
  EXPECT_EQ(aclDestroyTensorList(tensor_list), 0);
  EXPECT_EQ(aclDestroyScalarList(scalar_list), 0);
  EXPECT_EQ(aclDestroyTensor(tensors[1]), 161002);
  EXPECT_EQ(aclDestroyScalar(scalars[0]), 161002);
}

TEST(Lists, TakeLiveMembersOnly) {
  take_message();
  float value = 2.5f;
  aclScalar* scalar = aclCreateScalar(&value, ACL_FLOAT);
  aclTensor* dead =
      aclCreateTensor(nullptr, 0, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
  EXPECT_EQ(aclDestroyTensor(dead), 0);
  for (const void* member : {static_cast<const void*>(dead), static_cast<const void*>(scalar),
                             static_cast<const void*>(&value), static_cast<const void*>(nullptr)}) {
    const auto* tensor = static_cast<const aclTensor*>(member);
    EXPECT_EQ(aclCreateTensorList(&tensor, 1), nullptr);
    EXPECT_NE(take_message().find("aclCreateTensorList: value[0] is "), std::string::npos);
  }
  EXPECT_EQ(aclDestroyScalar(scalar), 0);
  EXPECT_EQ(aclCreateTensorList(reinterpret_cast<const aclTensor* const*>(&value), UINT64_MAX),
            nullptr);
}

struct Maker {
  const char* name;
  std::function<const void*()> make;
  std::function<aclnnStatus(const void*)> destroy;
};

template <class T, class Make>
Maker maker(const char* name, Make make, aclnnStatus (*destroy)(const T*)) {
  return {name, [make] { return static_cast<const void*>(make()); },
          [destroy](const void* object) { return destroy(static_cast<const T*>(object)); }};
}

std::vector<Maker> makers() {
  static const int64_t ints[] = {1, 2, 3};
  static const float floats[] = {1, 2, 3};
  static const bool bools[] = {true, false, true};
  const auto tensor = [] {
    return aclCreateTensor(ints, 3, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, ints, 3, nullptr);
  };
  const auto long_tensor = [] {
    static const int64_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    return aclCreateTensor(ones, 10, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, ones, 10, nullptr);
  };
  const auto scalar = [] {
    float value = 1;
    return aclCreateScalar(&value, ACL_FLOAT);
  };
  const auto tensor_list = [tensor] {
    const aclTensor* member = tensor();
    return aclCreateTensorList(&member, 1);
  };
  const auto scalar_list = [scalar] {
    const aclScalar* member = scalar();
    return aclCreateScalarList(&member, 1);
  };
  return {
      maker("tensor", tensor, aclDestroyTensor),
      maker("tensor of rank 10", long_tensor, aclDestroyTensor),
      maker("scalar", scalar, aclDestroyScalar),
      maker(
          "int array", [] { return aclCreateIntArray(ints, 3); }, aclDestroyIntArray),
      maker(
          "float array", [] { return aclCreateFloatArray(floats, 3); }, aclDestroyFloatArray),
      maker(
          "bool array", [] { return aclCreateBoolArray(bools, 3); }, aclDestroyBoolArray),
      maker("tensor list", tensor_list, aclDestroyTensorList),
      maker("scalar list", scalar_list, aclDestroyScalarList),
  };
}

// The first handle must still be refused when its slot was used a million times since.
TEST(Objects, AMillionOfEachKindLeaveNothingBehind) {
  for (const Maker& kind : makers()) {
    SCOPED_TRACE(kind.name);
    const void* first = kind.make();
    ASSERT_NE(first, nullptr);
    ASSERT_EQ(kind.destroy(first), 0);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(kind.destroy(kind.make()), 0);
    const int64_t before = resident_bytes();
    for (int i = 0; i < kPairs; ++i) {
      if (kind.destroy(kind.make()) != 0) FAIL() << "pair " << i;
    }
    EXPECT_LT(resident_bytes() - before, kFlat);
    EXPECT_EQ(kind.destroy(first), 161002);
  }
}

TEST(Objects, ManyAtOnceFromManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (const Maker& kind : makers()) {
        std::vector<const void*> objects;
        for (int i = 0; i < 500; ++i) objects.push_back(kind.make());
        for (const void* object : objects) failures += kind.destroy(object) == 0 ? 0 : 1;
        for (const void* object : objects) failures += kind.destroy(object) == 161002 ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
}

TEST(Library, InitAndFinalizeAlwaysSucceed) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(aclnnFinalize(), 0);
    EXPECT_EQ(aclnnInit(nullptr), 0);
    EXPECT_EQ(aclnnInit("/nowhere/at/all.json"), 0);
  }
}

}  // namespace
}  // namespace aclgrad::test
