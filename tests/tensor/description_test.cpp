// SPDX-License-Identifier: Apache-2.0
// Descriptions of tensors: what is kept, what getters give, and that a tensor is described anew as
// a whole or not at all.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "aclnn/aclnn_base.h"
#include "support/arrangement.h"
#include "support/device.h"
#include "tensor/operand.h"

namespace aclgrad::test {
namespace {

aclDataType dtype_number(int value) { return static_cast<aclDataType>(value); }
aclFormat format_number(int value) { return static_cast<aclFormat>(value); }

using Getter = aclnnStatus (*)(const aclTensor*, int64_t**, uint64_t*);

Dims get(Getter getter, const aclTensor* tensor) {
  int64_t* values = nullptr;
  uint64_t count = 12345;
  require(getter(tensor, &values, &count), "getter");
  EXPECT_NE(values, nullptr) << "even without values there is something to delete";
  const std::unique_ptr<int64_t[]> owner(values);
  return Dims(values, values + count);
}

TEST(CreateTensor, GettersGiveWhatWasGiven) {
  const int64_t dims[] = {2, 3, 4}, strides[] = {-12, 0, 7}, storage[] = {5, 6};
  int data = 0;
  aclTensor* tensor =
      aclCreateTensor(dims, 3, ACL_BF16, strides, -9, ACL_FORMAT_NCL, storage, 2, &data);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(get(aclGetViewShape, tensor), (Dims{2, 3, 4}));
  EXPECT_EQ(get(aclGetViewStrides, tensor), (Dims{-12, 0, 7}));
  EXPECT_EQ(get(aclGetStorageShape, tensor), (Dims{5, 6}));
  int64_t offset = 0;
  aclFormat format = ACL_FORMAT_ND;
  aclDataType dtype = ACL_FLOAT;
  void* address = nullptr;
  EXPECT_EQ(aclGetViewOffset(tensor, &offset), 0);
  EXPECT_EQ(aclGetFormat(tensor, &format), 0);
  EXPECT_EQ(aclGetDataType(tensor, &dtype), 0);
  EXPECT_EQ(aclGetRawTensorAddr(tensor, &address), 0);
  EXPECT_EQ(offset, -9);
  EXPECT_EQ(format, ACL_FORMAT_NCL);
  EXPECT_EQ(dtype, ACL_BF16);
  EXPECT_EQ(address, &data);
  EXPECT_EQ(aclSetRawTensorAddr(tensor, nullptr), 0);
  EXPECT_EQ(aclGetRawTensorAddr(tensor, &address), 0);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST(CreateTensor, ScalarsNullStridesAndNoStorage) {
  aclTensor* tensor =
      aclCreateTensor(nullptr, 0, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(get(aclGetViewShape, tensor), Dims{});
  EXPECT_EQ(get(aclGetViewStrides, tensor), Dims{});
  EXPECT_EQ(get(aclGetStorageShape, tensor), Dims{});
  EXPECT_EQ(aclDestroyTensor(tensor), 0);
  const int64_t dims[] = {2, 3, 1, 4};
  tensor = aclCreateTensor(dims, 4, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 4, nullptr);
  EXPECT_EQ(get(aclGetViewStrides, tensor), (Dims{12, 4, 4, 1}));
  EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST(CreateTensor, RefusesOnlyNullDimsAndAbsurdCounts) {
  use_device();
  take_message();
  const std::vector<int64_t> ones(size_t{1} << 20, 1);
  const auto create = [&](const int64_t* dims, uint64_t rank, const int64_t* storage,
                          uint64_t storage_rank) {
    return aclCreateTensor(dims, rank, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, storage, storage_rank,
                           nullptr);
  };
  EXPECT_EQ(create(nullptr, 1, nullptr, 0), nullptr);
  EXPECT_NE(take_message().find("aclCreateTensor: viewDims is null"), std::string::npos);
  EXPECT_EQ(create(ones.data(), 1, nullptr, 1), nullptr);
  EXPECT_NE(take_message().find("aclCreateTensor: storageDims is null"), std::string::npos);
  EXPECT_EQ(create(ones.data(), ones.size() + 1, nullptr, 0), nullptr);
  EXPECT_NE(take_message().find("viewDimsNum is 1048577"), std::string::npos);
  EXPECT_EQ(create(ones.data(), 1, ones.data(), UINT64_MAX), nullptr);
  EXPECT_NE(take_message().find("storageDimsNum is 18446744073709551615"), std::string::npos);

  aclTensor* longest = create(ones.data(), ones.size(), ones.data(), ones.size());
  ASSERT_NE(longest, nullptr);
  EXPECT_EQ(get(aclGetViewShape, longest), ones);
  EXPECT_EQ(get(aclGetViewStrides, longest), ones);
  EXPECT_EQ(get(aclGetStorageShape, longest), ones);
  EXPECT_EQ(aclDestroyTensor(longest), 0);

  const int64_t strange[] = {-1, INT64_MAX, INT64_MIN, 0, 5, 6, 7, 8, 9};
  aclTensor* kept = aclCreateTensor(strange, 9, dtype_number(999), strange, INT64_MIN,
                                    format_number(-77), strange, 3, nullptr);
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(get(aclGetViewShape, kept), Dims(strange, strange + 9));
  EXPECT_EQ(get(aclGetViewStrides, kept), Dims(strange, strange + 9));
  EXPECT_EQ(get(aclGetStorageShape, kept), Dims(strange, strange + 3));
  aclDataType dtype = ACL_FLOAT;
  EXPECT_EQ(aclGetDataType(kept, &dtype), 0);
  EXPECT_EQ(static_cast<int>(dtype), 999);
  EXPECT_EQ(aclDestroyTensor(kept), 0);
}

TEST(InitTensor, DescribesAnewInPlaceOrNotAtAll) {
  const int64_t dims[] = {2, 3}, longer[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  int data = 0;
  aclTensor* tensor =
      aclCreateTensor(dims, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 2, nullptr);
  EXPECT_EQ(aclInitTensor(tensor, longer, 10, ACL_INT8, longer, 4, ACL_FORMAT_NC, longer, 9, &data),
            0);
  const auto expect_longer = [&] {
    EXPECT_EQ(get(aclGetViewShape, tensor), Dims(longer, longer + 10));
    EXPECT_EQ(get(aclGetViewStrides, tensor), Dims(longer, longer + 10));
    EXPECT_EQ(get(aclGetStorageShape, tensor), Dims(longer, longer + 9));
    void* address = nullptr;
    EXPECT_EQ(aclGetRawTensorAddr(tensor, &address), 0);
    EXPECT_EQ(address, &data);
  };
  expect_longer();
  EXPECT_EQ(
      aclInitTensor(tensor, nullptr, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 2, nullptr),
      161001);
  EXPECT_EQ(
      aclInitTensor(tensor, dims, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 2, nullptr),
      161001);
  EXPECT_EQ(aclInitTensor(tensor, dims, (1 << 20) + 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims,
                          2, nullptr),
            161002);
  expect_longer();
  EXPECT_EQ(
      aclInitTensor(tensor, dims, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr), 0);
  EXPECT_EQ(get(aclGetViewShape, tensor), (Dims{2, 3}));
  EXPECT_EQ(get(aclGetViewStrides, tensor), (Dims{3, 1}));
  EXPECT_EQ(get(aclGetStorageShape, tensor), Dims{});
  EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

// Readers see one description or the other, never half of each.
TEST(InitTensor, ReadersOfOtherThreadsSeeNoMixture) {
  const int64_t ones[] = {1, 1, 1}, twos[] = {2, 2, 2, 2, 2, 2, 2, 2, 2};
  aclTensor* tensor = aclCreateTensor(ones, 3, ACL_FLOAT, ones, 1, ACL_FORMAT_ND, ones, 3, nullptr);
  std::atomic<bool> stop{false};
  std::atomic<int> mixtures{0};
  std::atomic<int> reads{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop.load()) {
        Operand operand;
        if (read_tensor("test", "x", tensor, operand) != 0) ++mixtures;
        bool same = operand.rank == (operand.offset == 1 ? 3u : 9u);
        for (int i = 0; i < operand.kept_dims(); ++i) {
          same = same && operand.dim(i) == operand.offset;
          same = same && operand.strides[static_cast<size_t>(i)] == operand.offset;
        }
        if (!same) ++mixtures;
        const Dims dims = get(aclGetViewShape, tensor);
        if (dims.size() != (dims[0] == 1 ? 3u : 9u)) ++mixtures;
        ++reads;
      }
    });
  }
  for (int i = 0; i < 5000 || reads.load() < 20000; ++i) {
    const bool two = i % 2 == 0;
    require(aclInitTensor(tensor, two ? twos : ones, two ? 9 : 3, ACL_FLOAT, two ? twos : ones,
                          two ? 2 : 1, ACL_FORMAT_ND, two ? twos : ones, two ? 9 : 3, nullptr),
            "aclInitTensor");
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mixtures.load(), 0);
  EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

}  // namespace
}  // namespace aclgrad::test
