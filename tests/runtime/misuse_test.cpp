// SPDX-License-Identifier: Apache-2.0
// Every function with every kind of wrong handle and null pointer: the documented status, a message
// that names the function, and nothing written.
#include <functional>
#include <vector>

#include "scene.h"

namespace aclgrad::test {
namespace {

constexpr aclError kNull = ACL_ERROR_INVALID_PARAM;

struct Row {
  const char* function;
  std::function<aclError()> call;
};

class MisuseTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    stream = make_stream();
    event = make_event();
    ASSERT_EQ(aclrtGetCurrentContext(&default_context), 0);
    ASSERT_EQ(aclrtCreateContext(&context, 0), 0);
    ASSERT_EQ(aclrtSetCurrentContext(default_context), 0);
    buffer = aclCreateDataBuffer(nullptr, 0);
    stale_stream = make_stream();
    ASSERT_EQ(aclrtDestroyStream(stale_stream), 0);
    stale_event = make_event();
    ASSERT_EQ(aclrtDestroyEvent(stale_event), 0);
    ASSERT_EQ(aclrtCreateContext(&stale_context, 0), 0);
    ASSERT_EQ(aclrtDestroyContext(stale_context), 0);
    ASSERT_EQ(aclrtSetCurrentContext(default_context), 0);
    messages();
  }
  void TearDown() override {
    EXPECT_EQ(aclrtSynchronizeDevice(), 0);
    EXPECT_EQ(aclDestroyDataBuffer(buffer), 0);
    EXPECT_EQ(aclrtDestroyContext(context), 0);
    EXPECT_EQ(aclrtDestroyEvent(event), 0);
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
    DeviceTest::TearDown();
  }
  // Foreign, never made, of other kinds, and the stale one.
  std::vector<void*> wrong(void* stale, std::initializer_list<void*> other_kinds) {
    std::vector<void*> all{stale, &local_, reinterpret_cast<void*>(uintptr_t{1}),
                           reinterpret_cast<void*>(~uintptr_t{0}),
                           static_cast<char*>(stale) + (1 << 20)};
    all.insert(all.end(), other_kinds);
    return all;
  }
  static void expect_all(const std::vector<Row>& rows, aclError expected) {
    for (const Row& row : rows) expect_refused(row.call(), expected, row.function);
  }

  aclrtStream stream = nullptr;
  aclrtEvent event = nullptr;
  aclrtContext context = nullptr;
  aclrtContext default_context = nullptr;
  aclDataBuffer* buffer = nullptr;
  aclrtStream stale_stream = nullptr;
  aclrtEvent stale_event = nullptr;
  aclrtContext stale_context = nullptr;

 private:
  int64_t local_[64] = {};
};

void nothing(void*) {}

TEST_F(MisuseTest, Streams) {
  void* memory = make_memory(8);
  for (void* bad : wrong(stale_stream, {event, context, buffer, memory})) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
    int32_t id = -7;
    expect_all(
        {{"aclrtDestroyStream", [&] { return aclrtDestroyStream(bad); }},
         {"aclrtDestroyStreamForce", [&] { return aclrtDestroyStreamForce(bad); }},
         {"aclrtSynchronizeStream", [&] { return aclrtSynchronizeStream(bad); }},
         {"aclrtSynchronizeStreamWithTimeout",
          [&] { return aclrtSynchronizeStreamWithTimeout(bad, 1); }},
         {"aclrtStreamQuery", [&] { return aclrtStreamQuery(bad, &status); }},
         {"aclrtStreamGetId", [&] { return aclrtStreamGetId(bad, &id); }},
         {"aclrtStreamWaitEvent", [&] { return aclrtStreamWaitEvent(bad, event); }},
         {"aclrtSubscribeReport", [&] { return aclrtSubscribeReport(1, bad); }},
         {"aclrtUnSubscribeReport", [&] { return aclrtUnSubscribeReport(1, bad); }},
         {"aclrtLaunchCallback",
          [&] { return aclrtLaunchCallback(nothing, nullptr, ACL_CALLBACK_BLOCK, bad); }},
         {"aclrtRecordEvent", [&] { return aclrtRecordEvent(event, bad); }},
         {"aclrtResetEvent", [&] { return aclrtResetEvent(event, bad); }},
         {"aclrtMemcpyAsync",
          [&] { return aclrtMemcpyAsync(memory, 8, &status, 4, ACL_MEMCPY_HOST_TO_DEVICE, bad); }},
         {"aclrtMemsetAsync", [&] { return aclrtMemsetAsync(memory, 8, 0, 8, bad); }}},
        ACL_ERROR_RT_STREAM_CONTEXT);
    EXPECT_EQ(status, ACL_STREAM_STATUS_RESERVED);
    EXPECT_EQ(id, -7);
    bool ran = false;
    expect_refused(enqueue(bad, [&] { ran = true; }), kParamInvalid, "aclnnTest");
    expect_refused(aclgrad_check_stream("aclnnTest", bad), kParamInvalid, "aclnnTest");
    EXPECT_FALSE(ran);
  }
  EXPECT_EQ(aclrtFree(memory), 0);
}

TEST_F(MisuseTest, Events) {
  std::vector<void*> all = wrong(stale_event, {stream, context, buffer});
  all.push_back(nullptr);
  for (void* bad : all) {
    aclrtEventStatus status = ACL_EVENT_STATUS_RESERVED;
    auto recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    aclrtEventWaitStatus waited = ACL_EVENT_WAIT_STATUS_RESERVED;
    float ms = -7;
    uint64_t timestamp = 7;
    expect_all(
        {{"aclrtDestroyEvent", [&] { return aclrtDestroyEvent(bad); }},
         {"aclrtRecordEvent", [&] { return aclrtRecordEvent(bad, stream); }},
         {"aclrtResetEvent", [&] { return aclrtResetEvent(bad, stream); }},
         {"aclrtSynchronizeEvent", [&] { return aclrtSynchronizeEvent(bad); }},
         {"aclrtStreamWaitEvent", [&] { return aclrtStreamWaitEvent(stream, bad); }},
         {"aclrtQueryEvent", [&] { return aclrtQueryEvent(bad, &status); }},
         {"aclrtQueryEventStatus", [&] { return aclrtQueryEventStatus(bad, &recorded); }},
         {"aclrtQueryEventWaitStatus", [&] { return aclrtQueryEventWaitStatus(bad, &waited); }},
         {"aclrtEventElapsedTime", [&] { return aclrtEventElapsedTime(&ms, bad, event); }},
         {"aclrtEventGetTimestamp", [&] { return aclrtEventGetTimestamp(bad, &timestamp); }}},
        bad == nullptr ? kNull : ACL_ERROR_RT_PARAM_INVALID);
    EXPECT_EQ(status, ACL_EVENT_STATUS_RESERVED);
    EXPECT_EQ(recorded, ACL_EVENT_RECORDED_STATUS_NOT_READY);
    EXPECT_EQ(waited, ACL_EVENT_WAIT_STATUS_RESERVED);
    EXPECT_EQ(ms, -7);
    EXPECT_EQ(timestamp, 7u);
  }
  ASSERT_EQ(aclrtRecordEvent(event, stream), 0);
  ASSERT_EQ(aclrtSynchronizeEvent(event), 0);
  float ms = 0;
  expect_refused(aclrtEventElapsedTime(&ms, event, stale_event), ACL_ERROR_RT_PARAM_INVALID,
                 "aclrtEventElapsedTime");
  expect_refused(aclrtEventElapsedTime(&ms, event, nullptr), kNull, "aclrtEventElapsedTime");
}

TEST_F(MisuseTest, Contexts) {
  for (void* bad : wrong(stale_context, {stream, event, buffer})) {
    expect_all({{"aclrtDestroyContext", [&] { return aclrtDestroyContext(bad); }},
                {"aclrtSetCurrentContext", [&] { return aclrtSetCurrentContext(bad); }}},
               ACL_ERROR_RT_CONTEXT_NULL);
  }
  expect_refused(aclrtDestroyContext(nullptr), kNull, "aclrtDestroyContext");
  expect_refused(aclrtSetCurrentContext(nullptr), kNull, "aclrtSetCurrentContext");
  aclrtContext current = nullptr;
  EXPECT_EQ(aclrtGetCurrentContext(&current), 0);
  EXPECT_EQ(current, default_context);
}

TEST_F(MisuseTest, NullPointers) {
  int32_t number = 0;
  size_t size = 0;
  char text[128] = {};
  const aclCannAttr* attributes = nullptr;
  expect_all(
      {{"aclrtGetVersion", [&] { return aclrtGetVersion(nullptr, &number, &number); }},
       {"aclrtGetVersion", [&] { return aclrtGetVersion(&number, nullptr, &number); }},
       {"aclrtGetVersion", [&] { return aclrtGetVersion(&number, &number, nullptr); }},
       {"aclsysGetVersionStr", [&] { return aclsysGetVersionStr(nullptr, text); }},
       {"aclsysGetVersionStr", [&] { return aclsysGetVersionStr(text, nullptr); }},
       {"aclsysGetVersionStr", [&] { return aclsysGetVersionStr(text, text); }},
       {"aclGetCannAttribute", [] { return aclGetCannAttribute(ACL_CANN_ATTR_BF16, nullptr); }},
       {"aclGetCannAttributeList", [&] { return aclGetCannAttributeList(nullptr, &size); }},
       {"aclGetCannAttributeList", [&] { return aclGetCannAttributeList(&attributes, nullptr); }},
       {"aclGetDeviceCapability",
        [] { return aclGetDeviceCapability(0, ACL_DEVICE_INFO_L2_SIZE, nullptr); }},
       {"aclrtGetDeviceCount", [] { return aclrtGetDeviceCount(nullptr); }},
       {"aclrtGetDevice", [] { return aclrtGetDevice(nullptr); }},
       {"aclrtGetRunMode", [] { return aclrtGetRunMode(nullptr); }},
       {"aclrtCreateContext", [] { return aclrtCreateContext(nullptr, 0); }},
       {"aclrtGetCurrentContext", [] { return aclrtGetCurrentContext(nullptr); }},
       {"aclrtCtxGetCurrentDefaultStream", [] { return aclrtCtxGetCurrentDefaultStream(nullptr); }},
       {"aclrtCtxGetSysParamOpt",
        [] { return aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, nullptr); }},
       {"aclrtGetSysParamOpt", [] { return aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, nullptr); }},
       {"aclrtDeviceCanAccessPeer", [] { return aclrtDeviceCanAccessPeer(nullptr, 0, 0); }},
       {"aclrtMalloc", [] { return aclrtMalloc(nullptr, 8, ACL_MEM_MALLOC_HUGE_FIRST); }},
       {"aclrtMallocAlign32",
        [] { return aclrtMallocAlign32(nullptr, 8, ACL_MEM_MALLOC_HUGE_FIRST); }},
       {"aclrtMallocHost", [] { return aclrtMallocHost(nullptr, 8); }},
       {"aclrtFree", [] { return aclrtFree(nullptr); }},
       {"aclrtFreeHost", [] { return aclrtFreeHost(nullptr); }},
       {"aclDestroyDataBuffer", [] { return aclDestroyDataBuffer(nullptr); }},
       {"aclrtCreateStream", [] { return aclrtCreateStream(nullptr); }},
       {"aclrtCreateStreamWithConfig", [] { return aclrtCreateStreamWithConfig(nullptr, 0, 0); }},
       {"aclrtDestroyStream", [] { return aclrtDestroyStream(nullptr); }},
       {"aclrtDestroyStreamForce", [] { return aclrtDestroyStreamForce(nullptr); }},
       {"aclrtStreamQuery", [&] { return aclrtStreamQuery(stream, nullptr); }},
       {"aclrtStreamGetId", [&] { return aclrtStreamGetId(stream, nullptr); }},
       {"aclrtStreamWaitEvent", [&] { return aclrtStreamWaitEvent(stream, nullptr); }},
       {"aclrtCreateEvent", [] { return aclrtCreateEvent(nullptr); }},
       {"aclrtCreateEventWithFlag", [] { return aclrtCreateEventWithFlag(nullptr, 0); }},
       {"aclrtCreateEventExWithFlag", [] { return aclrtCreateEventExWithFlag(nullptr, 0); }},
       {"aclrtQueryEvent", [&] { return aclrtQueryEvent(event, nullptr); }},
       {"aclrtQueryEventStatus", [&] { return aclrtQueryEventStatus(event, nullptr); }},
       {"aclrtQueryEventWaitStatus", [&] { return aclrtQueryEventWaitStatus(event, nullptr); }},
       {"aclrtEventElapsedTime", [&] { return aclrtEventElapsedTime(nullptr, event, event); }},
       {"aclrtEventGetTimestamp", [&] { return aclrtEventGetTimestamp(event, nullptr); }}},
      kNull);
}

// Handles mean the same in every thread.
TEST_F(MisuseTest, FromAnotherThread) {
  std::thread([&] {
    expect_refused(aclrtSynchronizeStream(stale_stream), ACL_ERROR_RT_STREAM_CONTEXT,
                   "aclrtSynchronizeStream");
    expect_refused(aclrtSynchronizeEvent(stale_event), ACL_ERROR_RT_PARAM_INVALID,
                   "aclrtSynchronizeEvent");
    expect_refused(aclrtSetCurrentContext(stale_context), ACL_ERROR_RT_CONTEXT_NULL,
                   "aclrtSetCurrentContext");
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  }).join();
}

}  // namespace
}  // namespace aclgrad::test
