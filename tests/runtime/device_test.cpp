// SPDX-License-Identifier: Apache-2.0
// Devices and contexts: counting, what is current in which thread, what goes with what.
#include "scene.h"

namespace aclgrad::test {
namespace {

TEST(Device, Numbers) {
  uint32_t count = 0;
  EXPECT_EQ(aclrtGetDeviceCount(&count), 0);
  EXPECT_EQ(count, 1u);
  expect_refused(aclrtSetDevice(1), ACL_ERROR_RT_INVALID_DEVICEID, "aclrtSetDevice");
  expect_refused(aclrtSetDevice(-1), ACL_ERROR_RT_INVALID_DEVICEID, "aclrtSetDevice");
  expect_refused(aclrtResetDevice(1), ACL_ERROR_RT_INVALID_DEVICEID, "aclrtResetDevice");
  aclrtContext context = nullptr;
  expect_refused(aclrtCreateContext(&context, 3), ACL_ERROR_RT_INVALID_DEVICEID,
                 "aclrtCreateContext");
  EXPECT_EQ(context, nullptr);
}

TEST(Device, SetAndResetCount) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  ASSERT_EQ(aclrtSetDevice(0), 0);
  int32_t device = -1;
  EXPECT_EQ(aclrtGetDevice(&device), 0);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(aclrtResetDevice(0), 0);
  EXPECT_EQ(aclrtSynchronizeDevice(), 0);
  EXPECT_EQ(aclrtResetDevice(0), 0);
  expect_refused(aclrtResetDevice(0), ACL_ERROR_RT_PARAM_INVALID, "aclrtResetDevice");
  expect_refused(aclrtGetDevice(&device), ACL_ERROR_RT_CONTEXT_NULL, "aclrtGetDevice");
}

// A thread that has set nothing; live objects work there all the same.
TEST(Device, NoCurrentContext) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  aclrtStream stream = make_stream();
  aclrtEvent event = make_event();
  void* memory = make_memory(64);
  std::thread([&] {
    void* address = nullptr;
    aclrtStream other_stream = nullptr;
    aclrtEvent other_event = nullptr;
    aclrtContext context = nullptr;
    aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
    int64_t value = 0;
    const aclError none = ACL_ERROR_RT_CONTEXT_NULL;
    expect_refused(aclrtMalloc(&address, 8, ACL_MEM_MALLOC_HUGE_FIRST), none, "aclrtMalloc");
    expect_refused(aclrtMallocAlign32(&address, 8, ACL_MEM_MALLOC_HUGE_FIRST), none,
                   "aclrtMallocAlign32");
    expect_refused(aclrtMallocHost(&address, 8), none, "aclrtMallocHost");
    expect_refused(aclrtCreateStream(&other_stream), none, "aclrtCreateStream");
    expect_refused(aclrtCreateStreamWithConfig(&other_stream, 0, 0), none,
                   "aclrtCreateStreamWithConfig");
    expect_refused(aclrtCreateEvent(&other_event), none, "aclrtCreateEvent");
    expect_refused(aclrtCreateEventWithFlag(&other_event, 0), none, "aclrtCreateEventWithFlag");
    expect_refused(aclrtCreateEventExWithFlag(&other_event, 0), none, "aclrtCreateEventExWithFlag");
    expect_refused(aclrtSynchronizeStream(nullptr), none, "aclrtSynchronizeStream");
    expect_refused(aclrtStreamQuery(nullptr, &status), none, "aclrtStreamQuery");
    expect_refused(aclrtRecordEvent(event, nullptr), none, "aclrtRecordEvent");
    expect_refused(aclrtSynchronizeDevice(), none, "aclrtSynchronizeDevice");
    expect_refused(aclrtSynchronizeDeviceWithTimeout(1), none, "aclrtSynchronizeDeviceWithTimeout");
    expect_refused(aclrtGetCurrentContext(&context), none, "aclrtGetCurrentContext");
    expect_refused(aclrtCtxGetCurrentDefaultStream(&other_stream), none,
                   "aclrtCtxGetCurrentDefaultStream");
    expect_refused(aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1), none,
                   "aclrtCtxSetSysParamOpt");
    expect_refused(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), none,
                   "aclrtCtxGetSysParamOpt");
    EXPECT_EQ(aclgrad_check_stream("aclnnTest", nullptr), none);
    EXPECT_EQ(address, nullptr);
    EXPECT_EQ(other_stream, nullptr);
    EXPECT_EQ(other_event, nullptr);

    EXPECT_EQ(aclrtMemsetAsync(memory, 64, 1, 64, stream), 0);
    EXPECT_EQ(aclrtRecordEvent(event, stream), 0);
    EXPECT_EQ(aclrtSynchronizeEvent(event), 0);
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
    EXPECT_EQ(aclrtFree(memory), 0);
    EXPECT_EQ(aclrtDestroyEvent(event), 0);
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
  }).join();
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

TEST(Device, DefaultContextIsSharedByThreads) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  aclrtContext here = nullptr, there = nullptr;
  aclrtStream stream_here = nullptr, stream_there = nullptr;
  EXPECT_EQ(aclrtGetCurrentContext(&here), 0);
  EXPECT_EQ(aclrtCtxGetCurrentDefaultStream(&stream_here), 0);
  std::thread([&] {
    EXPECT_EQ(aclrtSetDevice(0), 0);
    EXPECT_EQ(aclrtGetCurrentContext(&there), 0);
    EXPECT_EQ(aclrtCtxGetCurrentDefaultStream(&stream_there), 0);
    EXPECT_EQ(aclrtResetDevice(0), 0);
  }).join();
  EXPECT_EQ(here, there);
  EXPECT_EQ(stream_here, stream_there);
  expect_refused(aclrtDestroyContext(here), ACL_ERROR_RT_PARAM_INVALID, "aclrtDestroyContext");
  expect_refused(aclrtDestroyStream(stream_here), ACL_ERROR_RT_STREAM_CONTEXT,
                 "aclrtDestroyStream");
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

TEST(Device, ResetWaitsAndReleasesTheDefaultContext) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  aclrtStream stream = make_stream();
  aclrtStream default_stream = nullptr;
  ASSERT_EQ(aclrtCtxGetCurrentDefaultStream(&default_stream), 0);
  aclrtContext context = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&context), 0);
  std::atomic<int> done{0};
  for (aclrtStream each : {stream, default_stream}) {
    ASSERT_EQ(enqueue(each,
                      [&] {
                        sleep_ms(20);
                        ++done;
                      }),
              0);
  }
  void* memory = make_memory(1 << 20);
  EXPECT_EQ(aclrtResetDevice(0), 0);
  EXPECT_EQ(done, 2);
  expect_refused(aclrtSynchronizeStream(stream), ACL_ERROR_RT_STREAM_CONTEXT,
                 "aclrtSynchronizeStream");
  expect_refused(aclrtSynchronizeStream(default_stream), ACL_ERROR_RT_STREAM_CONTEXT,
                 "aclrtSynchronizeStream");
  expect_refused(aclrtSetCurrentContext(context), ACL_ERROR_RT_CONTEXT_NULL,
                 "aclrtSetCurrentContext");
  expect_refused(aclrtSynchronizeStream(nullptr), ACL_ERROR_RT_CONTEXT_NULL,
                 "aclrtSynchronizeStream");
  // Allocations outlive the device's context.
  const char one = 1;
  EXPECT_EQ(aclrtMemcpy(memory, 1, &one, 1, ACL_MEMCPY_HOST_TO_DEVICE), 0);
  EXPECT_EQ(aclrtFree(memory), 0);
}

TEST(Context, WorksWithoutSetDevice) {
  std::thread([] {
    aclrtContext context = nullptr;
    ASSERT_EQ(aclrtCreateContext(&context, 0), 0);
    aclrtContext current = nullptr;
    EXPECT_EQ(aclrtGetCurrentContext(&current), 0);
    EXPECT_EQ(current, context);
    aclrtStream stream = make_stream();
    void* memory = make_memory(16);
    EXPECT_EQ(aclrtMemsetAsync(memory, 16, 0, 16, nullptr), 0);
    EXPECT_EQ(aclrtSynchronizeDevice(), 0);
    EXPECT_EQ(aclrtFree(memory), 0);
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
    EXPECT_EQ(aclrtDestroyContext(context), 0);
    expect_refused(aclrtDestroyContext(context), ACL_ERROR_RT_CONTEXT_NULL, "aclrtDestroyContext");
    expect_refused(aclrtGetCurrentContext(&current), ACL_ERROR_RT_CONTEXT_NULL,
                   "aclrtGetCurrentContext");
  }).join();
}

TEST(Context, DestroyThenResetIsNormal) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  aclrtContext context = nullptr;
  ASSERT_EQ(aclrtCreateContext(&context, 0), 0);
  aclrtStream left_over = make_stream();
  std::atomic<bool> done{false};
  ASSERT_EQ(enqueue(left_over,
                    [&] {
                      sleep_ms(10);
                      done = true;
                    }),
            0);
  EXPECT_EQ(aclrtDestroyContext(context), 0);
  EXPECT_TRUE(done);
  expect_refused(aclrtSynchronizeStream(left_over), ACL_ERROR_RT_STREAM_CONTEXT,
                 "aclrtSynchronizeStream");
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

TEST(Context, SwitchingChangesTheNullStream) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  aclrtContext first = nullptr, second = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&first), 0);
  ASSERT_EQ(aclrtCreateContext(&second, 0), 0);
  const SharedGate gate = make_gate();
  enqueue_gate(nullptr, gate);
  aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
  EXPECT_EQ(aclrtStreamQuery(nullptr, &status), 0);
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  EXPECT_EQ(aclrtSetCurrentContext(first), 0);
  EXPECT_EQ(aclrtStreamQuery(nullptr, &status), 0);
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
  gate->open();
  EXPECT_EQ(aclrtDestroyContext(second), 0);
  aclrtContext current = nullptr;
  EXPECT_EQ(aclrtGetCurrentContext(&current), 0) << "another context was destroyed";
  EXPECT_EQ(current, first);
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

TEST_F(DeviceTest, SystemParameters) {
  int64_t value = 0;
  for (const aclSysParamOpt option :
       {ACL_OPT_DETERMINISTIC, ACL_OPT_ENABLE_DEBUG_KERNEL, ACL_OPT_STRONG_CONSISTENCY,
        ACL_OPT_ENABLE_KERNEL_EARLY_START}) {
    expect_refused(aclrtCtxGetSysParamOpt(option, &value), ACL_ERROR_RT_SYSPARAMOPT_NOT_SET,
                   "aclrtCtxGetSysParamOpt");
    expect_refused(aclrtGetSysParamOpt(option, &value), ACL_ERROR_RT_SYSPARAMOPT_NOT_SET,
                   "aclrtGetSysParamOpt");
  }
  EXPECT_EQ(aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1), 0);
  EXPECT_EQ(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), 0);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value), ACL_ERROR_RT_SYSPARAMOPT_NOT_SET);
  EXPECT_EQ(aclrtSetSysParamOpt(ACL_OPT_STRONG_CONSISTENCY, 1), 0);
  EXPECT_EQ(aclrtGetSysParamOpt(ACL_OPT_STRONG_CONSISTENCY, &value), 0);
  EXPECT_EQ(value, 1);
  expect_refused(aclrtCtxSetSysParamOpt(out_of_range<aclSysParamOpt>(17), 1),
                 ACL_ERROR_INVALID_PARAM, "aclrtCtxSetSysParamOpt");
  expect_refused(aclrtSetSysParamOpt(out_of_range<aclSysParamOpt>(17), 1), ACL_ERROR_INVALID_PARAM,
                 "aclrtSetSysParamOpt");
}

TEST_F(DeviceTest, SaturationMode) {
  EXPECT_EQ(aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_INFNAN), 0);
  expect_refused(aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_SATURATION),
                 ACL_ERROR_FEATURE_UNSUPPORTED, "aclrtSetDeviceSatMode");
  expect_refused(aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_UNDEF), ACL_ERROR_INVALID_PARAM,
                 "aclrtSetDeviceSatMode");
}

TEST_F(DeviceTest, Peers) {
  int32_t can = 7;
  EXPECT_EQ(aclrtDeviceCanAccessPeer(&can, 0, 0), 0);
  EXPECT_EQ(can, 0);
  expect_refused(aclrtDeviceCanAccessPeer(&can, 0, 1), ACL_ERROR_RT_INVALID_DEVICEID,
                 "aclrtDeviceCanAccessPeer");
  expect_refused(aclrtDeviceEnablePeerAccess(1, 0), ACL_ERROR_RT_INVALID_DEVICEID,
                 "aclrtDeviceEnablePeerAccess");
  expect_refused(aclrtDeviceEnablePeerAccess(0, 0), ACL_ERROR_RT_PARAM_INVALID,
                 "aclrtDeviceEnablePeerAccess");
}

// Setting and resetting from many threads at once.
TEST(Device, ManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) {
        ASSERT_EQ(aclrtSetDevice(0), 0);
        std::atomic<int> runs{0};
        aclrtStream stream = nullptr;
        ASSERT_EQ(aclrtCreateStream(&stream), 0);
        ASSERT_EQ(enqueue(stream, [&] { ++runs; }), 0);
        ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
        ASSERT_EQ(runs, 1);
        ASSERT_EQ(aclrtDestroyStream(stream), 0);
        ASSERT_EQ(aclrtResetDevice(0), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace aclgrad::test
