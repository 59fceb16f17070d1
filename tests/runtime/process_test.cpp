// SPDX-License-Identifier: Apache-2.0
// Start and stop, versions, attributes, the message slot, half floats.
#include <regex.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "scene.h"

namespace aclgrad::test {
namespace {

// One test, in this order: the state is the process's.
TEST(Process, InitAndFinalize) {
  EXPECT_EQ(aclFinalize(), 0) << "before any aclInit";
  uint64_t count = 7;
  EXPECT_EQ(aclFinalizeReference(&count), 0) << "before any aclInit";
  EXPECT_EQ(count, 0u);

  expect_refused(aclInit("/no/such/file.json"), ACL_ERROR_INVALID_FILE, "aclInit");
  expect_refused(aclInit("/"), ACL_ERROR_INVALID_FILE, "aclInit");
  EXPECT_EQ(aclInit(nullptr), 0);
  expect_refused(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE, "aclInit");
  EXPECT_EQ(aclFinalize(), 0);
  expect_refused(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE, "aclFinalize");
  EXPECT_EQ(aclInit("/proc/self/status"), 0) << "any existing file";
  EXPECT_EQ(aclInit(""), ACL_ERROR_REPEAT_INITIALIZE);
  EXPECT_EQ(aclFinalizeReference(&count), 0);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(aclFinalizeReference(nullptr), 0);
  EXPECT_EQ(aclFinalizeReference(&count), ACL_ERROR_REPEAT_FINALIZE);
  EXPECT_EQ(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE);
  messages();
}

TEST(Process, FinalizeReleasesNothing) {
  ASSERT_EQ(aclInit(nullptr), 0);
  ASSERT_EQ(aclrtSetDevice(0), 0);
  void* memory = make_memory(100);
  aclrtStream stream = make_stream();
  EXPECT_EQ(aclFinalize(), 0);
  EXPECT_EQ(aclrtMemsetAsync(memory, 100, 1, 100, stream), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
  EXPECT_EQ(aclrtResetDevice(0), 0);
  EXPECT_EQ(aclrtFree(memory), 0);
}

TEST(Process, Versions) {
  int32_t major = 0, minor = 0, patch = -1;
  EXPECT_EQ(aclrtGetVersion(&major, &minor, &patch), 0);
  EXPECT_EQ(major, 1);
  EXPECT_EQ(minor, 17);
  EXPECT_EQ(patch, 0);
  EXPECT_STREQ(aclrtGetSocName(), "Ascend910B1");
  char package[] = "CANN";
  char version[128] = {};
  EXPECT_EQ(aclsysGetVersionStr(package, version), 0);
  EXPECT_STREQ(version, "1.17.0");
  aclrtRunMode mode = ACL_DEVICE;
  EXPECT_EQ(aclrtGetRunMode(&mode), 0);
  EXPECT_EQ(mode, ACL_HOST);
}

TEST(Process, Attributes) {
  int32_t value = -1;
  EXPECT_EQ(aclGetCannAttribute(ACL_CANN_ATTR_INF_NAN, &value), 0);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(aclGetCannAttribute(ACL_CANN_ATTR_BF16, &value), 0);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(aclGetCannAttribute(ACL_CANN_ATTR_JIT_COMPILE, &value), 0);
  EXPECT_EQ(value, 0);
  expect_refused(aclGetCannAttribute(ACL_CANN_ATTR_UNDEFINED, &value), ACL_ERROR_INVALID_PARAM,
                 "aclGetCannAttribute");
  const aclCannAttr* list = nullptr;
  size_t count = 0;
  EXPECT_EQ(aclGetCannAttributeList(&list, &count), 0);
  ASSERT_EQ(count, 3u);
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(aclGetCannAttribute(list[i], &value), 0);

  for (const aclDeviceInfo info :
       {ACL_DEVICE_INFO_AI_CORE_NUM, ACL_DEVICE_INFO_VECTOR_CORE_NUM, ACL_DEVICE_INFO_L2_SIZE}) {
    int64_t size = 0;
    EXPECT_EQ(aclGetDeviceCapability(0, info, &size), 0);
    EXPECT_GT(size, 0);
  }
  int64_t untouched = 5;
  expect_refused(aclGetDeviceCapability(9, ACL_DEVICE_INFO_L2_SIZE, &untouched),
                 ACL_ERROR_RT_INVALID_DEVICEID, "aclGetDeviceCapability");
  expect_refused(aclGetDeviceCapability(0, ACL_DEVICE_INFO_UNDEFINED, &untouched),
                 ACL_ERROR_INVALID_PARAM, "aclGetDeviceCapability");
  EXPECT_EQ(untouched, 5);
}

TEST(Process, DataTypeSizes) {
  EXPECT_EQ(aclDataTypeSize(ACL_FLOAT), 4u);
  EXPECT_EQ(aclDataTypeSize(ACL_BF16), 2u);
  EXPECT_EQ(aclDataTypeSize(ACL_BOOL), 1u);
  EXPECT_EQ(aclDataTypeSize(ACL_COMPLEX128), 16u);
  EXPECT_EQ(aclDataTypeSize(ACL_INT4), 0u);
  EXPECT_EQ(aclDataTypeSize(ACL_DT_UNDEFINED), 0u);
  EXPECT_EQ(aclDataTypeSize(out_of_range<aclDataType>(12345)), 0u);
}

TEST(Messages, FormNewestFirstAndEmptied) {
  messages();
  EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
  aclrtMalloc(nullptr, 1, ACL_MEM_MALLOC_HUGE_FIRST);
  aclrtFree(nullptr);
  const std::string text = messages();
  EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
  const char* kForm =
      "^\\[PID: [0-9]+\\] "
      "[0-9]{4}-[0-9]{2}-[0-9]{2}-[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}\\.[0-9]{3} "
      "Invalid_Argument\\(EE1001\\): aclrtFree: [^\n]*\n"
      "\\[PID: [0-9]+\\] [^\n]* Invalid_Argument\\(EE1001\\): aclrtMalloc: [^\n]*$";
  regex_t form;
  ASSERT_EQ(regcomp(&form, kForm, REG_EXTENDED | REG_NOSUB), 0);
  EXPECT_EQ(regexec(&form, text.c_str(), 0, nullptr, 0), 0) << text;
  regfree(&form);
}

TEST(Messages, CategoriesOfCodes) {
  const std::pair<Status, const char*> rows[] = {
      {161001, "AclNN_Parameter_Error(EZ1001): x"}, {161002, "AclNN_Parameter_Error(EZ1001): x"},
      {561103, "AclNN_Inner_Error(EZ9999): x"},     {100000, "Invalid_Argument(EE1001): x"},
      {107003, "Invalid_Argument(EE1001): x"},      {507015, "Runtime_Error(EE9999): x"},
      {207001, "Runtime_Error(EE9999): x"},         {361001, "Runtime_Error(EE9999): x"}};
  for (const auto& [code, form] : rows) {
    EXPECT_EQ(fail(code, "%s", "x"), code);
    EXPECT_TRUE(contains(messages(), form)) << code;
  }
}

TEST(Messages, AtMostThirtyTwoAndPerThread) {
  messages();
  for (int i = 0; i < 100; ++i) fail(100000, "message %d.", i);
  std::string other = "unset";
  std::thread([&] { other = messages(); }).join();
  EXPECT_EQ(other, "");
  const std::string text = messages();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 31);
  EXPECT_TRUE(contains(text, "message 99."));
  EXPECT_TRUE(contains(text, "message 68."));
  EXPECT_FALSE(contains(text, "message 67."));
}

TEST(Messages, LongTextIsWhole) {
  const std::string letters(5000, 'a');
  fail(161002, "%s|end", letters.c_str());
  EXPECT_TRUE(contains(messages(), letters + "|end"));
}

TEST(LastError, GetResetsAndAclnnCodesAreNotKept) {
  aclrtGetLastError(ACL_RT_THREAD_LEVEL);
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 0);
  aclrtFree(nullptr);
  fail(161002, "an operator's");
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 0);
  EXPECT_EQ(aclrtGetLastError(out_of_range<aclrtLastErrLevel>(3)), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtPeekAtLastError(out_of_range<aclrtLastErrLevel>(3)), ACL_ERROR_INVALID_PARAM);
  messages();
}

TEST(Process, AppLogTakesAnything) {
  ACL_APP_LOG(ACL_INFO, "%d of %s", 3, "three");
  aclAppLog(out_of_range<aclLogLevel>(-5), nullptr, nullptr, 0, nullptr);
  aclAppLog(ACL_ERROR, nullptr, nullptr, 0, "text");
}

TEST(HalfFloat, SaturatesAsPublished) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(aclFloatToFloat16(infinity), 0x7BFF);
  EXPECT_EQ(aclFloatToFloat16(-infinity), 0xFBFF);
  EXPECT_EQ(aclFloatToFloat16(std::nanf("")), 0x7BFF);
  EXPECT_EQ(aclFloatToFloat16(1e9f), 0x7BFF);
  EXPECT_EQ(aclFloatToFloat16(-1e9f), 0xFBFF);
  EXPECT_EQ(aclFloatToFloat16(65504.0f), 0x7BFF);
  EXPECT_EQ(aclFloat16ToFloat(0x7C00), 65536.0f);
  EXPECT_EQ(aclFloat16ToFloat(0xFC00), -65536.0f);
  EXPECT_EQ(aclFloat16ToFloat(0x7E00), 98304.0f);
}

TEST(HalfFloat, EveryFiniteHalfComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7C00) == 0x7C00) continue;
    const auto half = static_cast<aclFloat16>(bits);
    ASSERT_EQ(aclFloatToFloat16(aclFloat16ToFloat(half)), half);
  }
  EXPECT_EQ(aclFloatToFloat16(1.0f), 0x3C00);
  EXPECT_EQ(aclFloatToFloat16(-2.0f), 0xC000);
  // Ties go to even: 1 + 2^-11 down, 1 + 3 * 2^-11 up.
  EXPECT_EQ(aclFloatToFloat16(1.0f + 0x1p-11f), 0x3C00);
  EXPECT_EQ(aclFloatToFloat16(1.0f + 3 * 0x1p-11f), 0x3C02);
  EXPECT_EQ(aclFloatToFloat16(0x1p-24f), 0x0001);
  EXPECT_EQ(aclFloatToFloat16(0x1p-25f), 0x0000);
}

}  // namespace
}  // namespace aclgrad::test
