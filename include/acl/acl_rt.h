// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * The runtime: process, devices, contexts, memory, streams, callbacks and events. Exported by
 * libascendcl.so.
 *
 * Holds for every function: 0 is success, and aclGetRecentErrMsg explains any other status. A null
 * pointer gives 100000 unless null is said to be allowed; a handle that is dead, foreign or of
 * another kind gives 107003 (stream), 107002 (context) or 107000 (event and the rest) and is never
 * dereferenced; want of memory for the library's own objects gives 200000; any call in a forked
 * child gives 500000. A null stream is the current context's default stream. "No current context",
 * 107002, means that the calling thread has set neither a device nor a context. Times are in
 * milliseconds unless another unit is named; sizes in bytes.
 *
 * Source: CANN runtime reference; the chapter is named with each group.
 */
#ifndef ACLGRAD_ACL_ACL_RT_H_
#define ACLGRAD_ACL_ACL_RT_H_

#include "acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Flags ----------------------------------------------------------------------------------- */

/* Of events. Every event of the CPU device can be waited for and timed, whatever flags it has. */
#define ACL_EVENT_SYNC 0x00000001U
#define ACL_EVENT_CAPTURE_STREAM_PROGRESS 0x00000002U
#define ACL_EVENT_TIME_LINE 0x00000008U
#define ACL_EVENT_DEVICE_USE_ONLY 0x00000010U
#define ACL_EVENT_EXTERNAL 0x00000020U
#define ACL_EVENT_IPC 0x00000040U
#define ACL_EVENT_RECORD_DEFAULT 0x0U
#define ACL_EVENT_RECORD_EXTERNAL 0x01U
#define ACL_EVENT_WAIT_DEFAULT 0x0U
#define ACL_EVENT_WAIT_EXTERNAL 0x01U

/* Of streams: all accepted, none changes how a stream of the CPU device behaves. */
#define ACL_STREAM_FAST_LAUNCH 0x00000001U
#define ACL_STREAM_FAST_SYNC 0x00000002U
#define ACL_STREAM_PERSISTENT 0x00000004U
#define ACL_STREAM_HUGE 0x00000008U
#define ACL_STREAM_CPU_SCHEDULE 0x00000010U
#define ACL_STREAM_DEVICE_USE_ONLY 0x00000020U
#define ACL_STREAM_WAIT_VALUE_GEQ 0x00000000U
#define ACL_STREAM_WAIT_VALUE_EQ 0x00000001U
#define ACL_STREAM_WAIT_VALUE_AND 0x00000002U
#define ACL_STREAM_WAIT_VALUE_NOR 0x00000003U

/* ---- Enumerations ---------------------------------------------------------------------------- */

/** Where the program runs: on the device itself or on a host. */
typedef enum aclrtRunMode { ACL_DEVICE = 0, ACL_HOST = 1 } aclrtRunMode;

/** State of an event for aclrtQueryEvent. */
typedef enum aclrtEventStatus {
  ACL_EVENT_STATUS_COMPLETE = 0,
  ACL_EVENT_STATUS_NOT_READY = 1,
  ACL_EVENT_STATUS_RESERVED = 2
} aclrtEventStatus;

/** State of an event's latest record. */
typedef enum aclrtEventRecordedStatus {
  ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
  ACL_EVENT_RECORDED_STATUS_COMPLETE = 1
} aclrtEventRecordedStatus;

/** State of the waits for an event. */
typedef enum aclrtEventWaitStatus {
  ACL_EVENT_WAIT_STATUS_COMPLETE = 0,
  ACL_EVENT_WAIT_STATUS_NOT_READY = 1,
  ACL_EVENT_WAIT_STATUS_RESERVED = 0xffff
} aclrtEventWaitStatus;

/** State of a stream: nothing left to do, or work under way. */
typedef enum aclrtStreamStatus {
  ACL_STREAM_STATUS_COMPLETE = 0,
  ACL_STREAM_STATUS_NOT_READY = 1,
  ACL_STREAM_STATUS_RESERVED = 0xffff
} aclrtStreamStatus;

/** Whether a callback holds its stream until it is done. */
typedef enum aclrtCallbackBlockType {
  ACL_CALLBACK_NO_BLOCK = 0,
  ACL_CALLBACK_BLOCK = 1
} aclrtCallbackBlockType;

/** Direction of a copy. Advisory: the direction follows the pointers. */
typedef enum aclrtMemcpyKind {
  ACL_MEMCPY_HOST_TO_HOST = 0,
  ACL_MEMCPY_HOST_TO_DEVICE = 1,
  ACL_MEMCPY_DEVICE_TO_HOST = 2,
  ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
  ACL_MEMCPY_DEFAULT = 4,
  ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5,
  ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6,
  ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7
} aclrtMemcpyKind;

/** Wishes for the pages of an allocation. Advisory. */
typedef enum aclrtMemMallocPolicy {
  ACL_MEM_MALLOC_HUGE_FIRST = 0,
  ACL_MEM_MALLOC_HUGE_ONLY = 1,
  ACL_MEM_MALLOC_NORMAL_ONLY = 2,
  ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3,
  ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4,
  ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
  ACL_MEM_MALLOC_HUGE1G_ONLY = 6,
  ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7,
  ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x100,
  ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000,
  ACL_MEM_ACCESS_USER_SPACE_READONLY = 0x100000
} aclrtMemMallocPolicy;

/** Kind of memory asked about. All kinds answer alike. */
typedef enum aclrtMemAttr {
  ACL_DDR_MEM = 0,
  ACL_HBM_MEM = 1,
  ACL_DDR_MEM_HUGE = 2,
  ACL_DDR_MEM_NORMAL = 3,
  ACL_HBM_MEM_HUGE = 4,
  ACL_HBM_MEM_NORMAL = 5,
  ACL_DDR_MEM_P2P_HUGE = 6,
  ACL_DDR_MEM_P2P_NORMAL = 7,
  ACL_HBM_MEM_P2P_HUGE = 8,
  ACL_HBM_MEM_P2P_NORMAL = 9,
  ACL_HBM_MEM_HUGE1G = 10,
  ACL_HBM_MEM_P2P_HUGE1G = 11,
  ACL_MEM_NORMAL = 12,
  ACL_MEM_HUGE = 13,
  ACL_MEM_HUGE1G = 14,
  ACL_MEM_P2P_NORMAL = 15,
  ACL_MEM_P2P_HUGE = 16,
  ACL_MEM_P2P_HUGE1G = 17
} aclrtMemAttr;

/** What an overflow gives: the largest number, or Inf. */
typedef enum aclrtFloatOverflowMode {
  ACL_RT_OVERFLOW_MODE_SATURATION = 0,
  ACL_RT_OVERFLOW_MODE_INFNAN = 1,
  ACL_RT_OVERFLOW_MODE_UNDEF = 2
} aclrtFloatOverflowMode;

/** Settings of a context or of the process. */
typedef enum aclSysParamOpt {
  ACL_OPT_DETERMINISTIC = 0,
  ACL_OPT_ENABLE_DEBUG_KERNEL = 1,
  ACL_OPT_STRONG_CONSISTENCY = 2,
  ACL_OPT_ENABLE_KERNEL_EARLY_START = 3
} aclSysParamOpt;

/** Whose last error is asked for. */
typedef enum aclrtLastErrLevel { ACL_RT_THREAD_LEVEL = 0 } aclrtLastErrLevel;

/** Where a piece of memory lives. */
typedef enum aclrtMemLocationType {
  ACL_MEM_LOCATION_TYPE_HOST = 0,
  ACL_MEM_LOCATION_TYPE_DEVICE = 1,
  ACL_MEM_LOCATION_TYPE_UNREGISTERED = 2,
  ACL_MEM_LOCATION_TYPE_MANAGED = 3,
  ACL_MEM_LOCATION_TYPE_HOST_NUMA = 4
} aclrtMemLocationType;

/** Function that aclrtLaunchCallback enqueues; gets the pointer given there. */
typedef void (*aclrtCallback)(void* userData);

/* ---- Process (Source: initialisation and version chapters) ----------------------------------- */

/**
 * Starts the use of the library. Optional: all other functions work without it.
 *
 * @param configPath  null, empty, or the path of a file; the contents are not read.
 * @return 0; 100002 already initialised (harmless); 100003 no such file, or a directory.
 */
ACL_FUNC_VISIBILITY aclError aclInit(const char* configPath);

/**
 * Ends the use of the library. Releases nothing that the program still holds; aclInit may follow.
 *
 * @return 0, also before any aclInit; 100037 already finalised.
 */
ACL_FUNC_VISIBILITY aclError aclFinalize(void);

/**
 * Takes back one aclInit.
 *
 * @param refCount  receives how many are left; at 0 the library is finalised. Null is allowed.
 * @return 0, also before any aclInit; 100037 already finalised.
 */
ACL_FUNC_VISIBILITY aclError aclFinalizeReference(uint64_t* refCount);

/**
 * Gives the version of the interface: ACL_MAJOR_VERSION, ACL_MINOR_VERSION, ACL_PATCH_VERSION.
 *
 * @return 0; 100000 a pointer is null.
 */
ACL_FUNC_VISIBILITY aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion,
                                             int32_t* patchVersion);

/** Gives the product whose contract is kept: "Ascend910B1". Never null; belongs to the library. */
ACL_FUNC_VISIBILITY const char* aclrtGetSocName(void);

/**
 * Gives the version of a software package as text.
 *
 * @param pkgName     name of the package.
 * @param versionStr  receives the text; room for 128 bytes.
 * @return 0; 100000 a pointer is null or pkgName empty.
 */
ACL_FUNC_VISIBILITY aclError aclsysGetVersionStr(char* pkgName, char* versionStr);

/**
 * Gives the calling thread's messages since the last call, newest first, at most 32, and clears
 * them: "[PID: n] <time> AclNN_Parameter_Error(EZ1001): <text>". EZ1001 explains 161xxx, EZ9999
 * 561xxx, EE1001 arguments of runtime functions, EE9999 failures while running.
 *
 * @return null when there is none; else a text that is valid until the thread's next call.
 */
ACL_FUNC_VISIBILITY const char* aclGetRecentErrMsg(void);

/**
 * Gives the calling thread's last error and sets it back to 0.
 *
 * @param level  ACL_RT_THREAD_LEVEL; any other gives 100000.
 * @return the last status other than 0 that a runtime function gave this thread; 0 if none.
 */
ACL_FUNC_VISIBILITY aclError aclrtGetLastError(aclrtLastErrLevel level);

/** Gives the calling thread's last error as aclrtGetLastError does, and leaves it. */
ACL_FUNC_VISIBILITY aclError aclrtPeekAtLastError(aclrtLastErrLevel level);

/* ---- Devices (Source: device management chapter) --------------------------------------------- */

/**
 * Gives the number of devices, ASCEND_RT_VISIBLE_DEVICES considered.
 *
 * @return 0; 100000 count null.
 */
ACL_FUNC_VISIBILITY aclError aclrtGetDeviceCount(uint32_t* count);

/**
 * Makes a device current for the calling thread, with its default context and default stream, which
 * all threads that set the device share. Each call counts one, to be taken back by
 * aclrtResetDevice.
 *
 * @return 0; 107001 no such device.
 */
ACL_FUNC_VISIBILITY aclError aclrtSetDevice(int32_t deviceId);

/**
 * Gives the calling thread's device.
 *
 * @return 0; 100000 deviceId null; 107002 no current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtGetDevice(int32_t* deviceId);

/**
 * Takes back one aclrtSetDevice. At zero: waits for the device's work, then releases the default
 * context with all its streams. Allocations live on until they are freed.
 *
 * @return 0; 107001 no such device; 107000 more resets than sets, or the last one in a blocking
 *         callback of one of the device's streams; 507015 a data error nobody was told of yet: the
 *         device is released all the same.
 */
ACL_FUNC_VISIBILITY aclError aclrtResetDevice(int32_t deviceId);

/**
 * Waits until all work of the current device is done.
 *
 * @return 0; 107002 no current context; 507015 a data error of the work, reported once; 107000
 *         called in a blocking callback of one of the device's streams.
 */
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeDevice(void);

/**
 * As aclrtSynchronizeDevice, with a limit.
 *
 * @param timeout  milliseconds; -1 waits for ever.
 * @return as above; 507046 time is up, the work goes on; 107000 timeout below -1.
 */
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout);

/**
 * Gives where the program runs: always ACL_HOST.
 *
 * @return 0; 100000 runMode null.
 */
ACL_FUNC_VISIBILITY aclError aclrtGetRunMode(aclrtRunMode* runMode);

/**
 * Chooses what overflows give. Operators always overflow to Inf.
 *
 * @return 0 for ACL_RT_OVERFLOW_MODE_INFNAN; 200006 for SATURATION, which changes nothing; 100000
 *         for any other.
 */
ACL_FUNC_VISIBILITY aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode);

/**
 * Tells whether one device can read another's memory.
 *
 * @param canAccessPeer  receives 1 or 0; 0 for a device and itself.
 * @return 0; 100000 canAccessPeer null; 107001 no such device.
 */
ACL_FUNC_VISIBILITY aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId,
                                                      int32_t peerDeviceId);

/**
 * Lets the current device read another's memory.
 *
 * @param flags  0.
 * @return 0; 107001 no such device; 107000 flags is not 0, or the peer is the device itself.
 */
ACL_FUNC_VISIBILITY aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags);

/* ---- Contexts and settings (Source: context management chapter) ------------------------------ */

/**
 * Makes a context with a default stream of its own and makes it current for the calling thread;
 * works without aclrtSetDevice.
 *
 * @return 0; 100000 context null; 107001 no such device.
 */
ACL_FUNC_VISIBILITY aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId);

/**
 * Waits for the work of a context's streams and destroys it.
 *
 * @return 0; 100000 context null; 107002 context dead; 107000 a device's default context, or called
 *         in a blocking callback of one of its streams; 507015 a data error nobody was told of yet.
 */
ACL_FUNC_VISIBILITY aclError aclrtDestroyContext(aclrtContext context);

/**
 * Makes a context, and its device, current for the calling thread.
 *
 * @return 0; 100000 context null; 107002 context dead.
 */
ACL_FUNC_VISIBILITY aclError aclrtSetCurrentContext(aclrtContext context);

/**
 * Gives the calling thread's context.
 *
 * @return 0; 100000 context null; 107002 no current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtGetCurrentContext(aclrtContext* context);

/**
 * Gives the default stream of the current context.
 *
 * @return 0; 100000 stream null; 107002 no current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtCtxGetCurrentDefaultStream(aclrtStream* stream);

/**
 * Changes a setting of the current context. ACL_OPT_DETERMINISTIC is accepted with any value: all
 * results are deterministic.
 *
 * @return 0; 100000 opt unknown; 107002 no current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value);

/**
 * Gives a setting of the current context.
 *
 * @return 0; 100000 value null or opt unknown; 107002 no current context; 107021 never set.
 */
ACL_FUNC_VISIBILITY aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value);

/**
 * Changes a setting of the process.
 *
 * @return 0; 100000 opt unknown.
 */
ACL_FUNC_VISIBILITY aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value);

/**
 * Gives a setting of the process.
 *
 * @return 0; 100000 value null or opt unknown; 107021 never set.
 */
ACL_FUNC_VISIBILITY aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value);

/* ---- Memory (Source: memory management chapter) ---------------------------------------------- */

/**
 * Allocates device memory: 64-byte aligned, not initialised. The allocation is size rounded up to a
 * multiple of 32, plus 32 bytes.
 *
 * @param devPtr  receives the address.
 * @param size    bytes, above 0.
 * @param policy  advisory.
 * @return 0; 100000 devPtr null or size 0; 107002 no current context; 207001 no memory.
 */
ACL_FUNC_VISIBILITY aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy);

/** As aclrtMalloc. */
ACL_FUNC_VISIBILITY aclError aclrtMallocAlign32(void** devPtr, size_t size,
                                                aclrtMemMallocPolicy policy);

/**
 * Frees device memory without waiting: the address is dead at once, the memory is released when the
 * work already queued is done. Works after aclrtResetDevice and aclFinalize, from any thread.
 *
 * @return 0; 100000 devPtr null, or not the start of a live allocation.
 */
ACL_FUNC_VISIBILITY aclError aclrtFree(void* devPtr);

/**
 * Allocates pinned host memory, for copies that need not wait; otherwise as aclrtMalloc. Operators
 * refuse it as a tensor's memory with 161002.
 *
 * @return 0; 100000 hostPtr null or size 0; 107002 no current context; 207001 no memory.
 */
ACL_FUNC_VISIBILITY aclError aclrtMallocHost(void** hostPtr, size_t size);

/**
 * Frees pinned host memory; rules as for aclrtFree.
 *
 * @return 0; 100000 hostPtr null, or not the start of a live allocation.
 */
ACL_FUNC_VISIBILITY aclError aclrtFreeHost(void* hostPtr);

/**
 * Copies memory and returns when that is done.
 *
 * @param dst      where to; a dst equal to src is no error.
 * @param destMax  bytes available at dst.
 * @param src      where from.
 * @param count    bytes to copy; 0 succeeds before any check.
 * @param kind     direction; advisory, but of the enumeration.
 * @return 0; 100000 dst or src null, kind unknown; 107000 count above destMax, a range that leaves
 *         the allocation it begins in, or an address of the library's that lies in no live one.
 */
ACL_FUNC_VISIBILITY aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                                         aclrtMemcpyKind kind);

/**
 * Enqueues a copy on a stream. If a host side is not from aclrtMallocHost, returns when the copy is
 * done.
 *
 * @param stream  the stream, null allowed; the other parameters are those of aclrtMemcpy.
 * @return as aclrtMemcpy; 107003 stream dead; 107002 stream null and no current context; 107000 it
 *         would wait in a blocking callback of its own stream.
 */
ACL_FUNC_VISIBILITY aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src,
                                              size_t count, aclrtMemcpyKind kind,
                                              aclrtStream stream);

/**
 * Fills memory with a byte and returns when that is done.
 *
 * @param devPtr    where to.
 * @param maxCount  bytes available there.
 * @param value     the byte, converted to unsigned char.
 * @param count     bytes to fill; 0 succeeds before any check.
 * @return 0; 100000 devPtr null; 107000 count above maxCount, or a range as for aclrtMemcpy.
 */
ACL_FUNC_VISIBILITY aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value,
                                         size_t count);

/**
 * Enqueues a fill on a stream.
 *
 * @return as aclrtMemset; 107003 stream dead; 107002 stream null and no current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value,
                                              size_t count, aclrtStream stream);

/**
 * Gives the memory of the current device: on the CPU the machine's, within the limits of the
 * process's control group.
 *
 * @param attr   kind of memory; all kinds answer alike.
 * @param free   receives the free bytes.
 * @param total  receives all bytes.
 * @return 0; 100000 a pointer is null or attr unknown.
 */
ACL_FUNC_VISIBILITY aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total);

/* ---- Streams (Source: stream management chapter) --------------------------------------------- */

/**
 * Makes a stream in the current context. Streams run independently of each other.
 *
 * @return 0; 100000 stream null; 107002 no current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtCreateStream(aclrtStream* stream);

/**
 * As aclrtCreateStream.
 *
 * @param priority  advisory.
 * @param flag      any combination of the ACL_STREAM_ flags; advisory.
 * @return as aclrtCreateStream; 107000 an unknown flag.
 */
ACL_FUNC_VISIBILITY aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority,
                                                         uint32_t flag);

/**
 * Waits for a stream's work and destroys it.
 *
 * @return 0; 100000 stream null; 107003 stream dead, or a context's default stream; 107000 called
 *         in a blocking callback of the stream; 507015 a data error nobody was told of yet: the
 *         stream is destroyed all the same.
 */
ACL_FUNC_VISIBILITY aclError aclrtDestroyStream(aclrtStream stream);

/**
 * Destroys a stream; work that has not begun is dropped, data errors nobody was told of, too.
 *
 * @return 0; 100000 stream null; 107003 stream dead, or a context's default stream; 107000 called
 *         in a blocking callback of the stream.
 */
ACL_FUNC_VISIBILITY aclError aclrtDestroyStreamForce(aclrtStream stream);

/**
 * Waits until all work of a stream is done.
 *
 * @param stream  the stream, null allowed.
 * @return 0; 107003 stream dead; 107002 stream null and no current context; 507015 a data error of
 *         the work, reported once; 107000 called in a blocking callback of the stream.
 */
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeStream(aclrtStream stream);

/**
 * As aclrtSynchronizeStream, with a limit.
 *
 * @param timeout  milliseconds; -1 waits for ever.
 * @return as above; 507046 time is up, the work goes on; 107000 timeout below -1.
 */
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout);

/**
 * Tells whether a stream has work left; does not wait and consumes no data error.
 *
 * @param stream  the stream, null allowed.
 * @return 0; 100000 status null; 107003 stream dead; 107002 stream null and no current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status);

/**
 * Gives a stream's number, which no other live stream has.
 *
 * @return 0; 100000 streamId null; 107003 stream dead; 107002 stream null and no current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtStreamGetId(aclrtStream stream, int32_t* streamId);

/**
 * Holds what is queued on a stream later until the event's latest record is complete. An event
 * never recorded holds nothing.
 *
 * @param stream  the stream, null allowed.
 * @return 0; 107003 stream dead; 107002 stream null and no current context; 100000 event null;
 *         107000 event dead.
 */
ACL_FUNC_VISIBILITY aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);

/* ---- Callbacks (Source: callback chapter) ---------------------------------------------------- */

/**
 * Makes a thread the one that runs a stream's callbacks.
 *
 * @param threadId  the thread, as pthread_self gives it.
 * @param stream    the stream, null allowed.
 * @return 0; 107011 the stream has a subscriber; 107003 stream dead; 107002 stream null and no
 *         current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream);

/**
 * Takes back aclrtSubscribeReport. Callbacks that wait for the thread are dropped, those launched
 * with ACL_CALLBACK_NO_BLOCK without a word.
 *
 * @return 0; 107012 another thread is subscribed to the stream; 107015 none is; stream as above.
 */
ACL_FUNC_VISIBILITY aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream);

/**
 * Waits for a callback of the calling thread's streams and runs it.
 *
 * @param timeout  milliseconds; -1 waits for ever.
 * @return 0; 107012 thread not subscribed; 507012 nothing came in time; 107000 timeout below -1.
 */
ACL_FUNC_VISIBILITY aclError aclrtProcessReport(int32_t timeout);

/**
 * Enqueues a callback on a stream. It is run by the subscribed thread, inside aclrtProcessReport:
 * that thread must not wait without a time-out for what stands behind the callback, since nobody
 * else would run it.
 *
 * @param fn         the function.
 * @param userData   its argument; null allowed.
 * @param blockType  ACL_CALLBACK_BLOCK holds the stream until the function has returned.
 * @param stream     the stream, null allowed.
 * @return 0; 100000 fn null or blockType unknown; 107015 nobody subscribed to the stream; 107003
 *         stream dead; 107002 stream null and no current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtLaunchCallback(aclrtCallback fn, void* userData,
                                                 aclrtCallbackBlockType blockType,
                                                 aclrtStream stream);

/* ---- Events (Source: event management chapter) ----------------------------------------------- */

/**
 * Makes an event.
 *
 * @return 0; 100000 event null; 107002 no current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtCreateEvent(aclrtEvent* event);

/**
 * As aclrtCreateEvent.
 *
 * @param flag  any combination of the ACL_EVENT_ flags; advisory.
 * @return as aclrtCreateEvent; 107000 an unknown flag.
 */
ACL_FUNC_VISIBILITY aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag);

/** As aclrtCreateEventWithFlag. */
ACL_FUNC_VISIBILITY aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag);

/**
 * Destroys an event; waits already queued for it stay good.
 *
 * @return 0; 100000 event null; 107000 event dead.
 */
ACL_FUNC_VISIBILITY aclError aclrtDestroyEvent(aclrtEvent event);

/**
 * Marks the work queued on a stream so far. A later record takes the place of an earlier one.
 *
 * @param stream  the stream, null allowed.
 * @return 0; 100000 event null; 107000 event dead; 107003 stream dead; 107002 stream null and no
 *         current context.
 */
ACL_FUNC_VISIBILITY aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);

/** Takes an event back to never recorded, in stream order. Status as for aclrtRecordEvent. */
ACL_FUNC_VISIBILITY aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);

/**
 * Waits until an event's latest record is complete; one never recorded is.
 *
 * @return 0; 100000 event null; 107000 event dead, or called in a blocking callback of the stream
 *         that the record waits on; 507015 a data error of the work before the record, reported
 * once.
 */
ACL_FUNC_VISIBILITY aclError aclrtSynchronizeEvent(aclrtEvent event);

/**
 * Tells whether an event's latest record is complete; one never recorded is. Does not wait.
 *
 * @return 0; 100000 event or status null; 107000 event dead.
 */
ACL_FUNC_VISIBILITY aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status);

/** As aclrtQueryEvent, with the other enumeration. */
ACL_FUNC_VISIBILITY aclError aclrtQueryEventStatus(aclrtEvent event,
                                                   aclrtEventRecordedStatus* status);

/**
 * Tells whether the waits queued with aclrtStreamWaitEvent have nothing left to wait for.
 *
 * @return as aclrtQueryEvent.
 */
ACL_FUNC_VISIBILITY aclError aclrtQueryEventWaitStatus(aclrtEvent event,
                                                       aclrtEventWaitStatus* status);

/**
 * Gives the time from one event to another, measured on their streams.
 *
 * @param ms          receives milliseconds.
 * @param startEvent  the first event.
 * @param endEvent    the second event.
 * @return 0; 100000 a pointer is null; 107000 event dead; 107006 an event is not recorded or not
 *         complete; 107007 endEvent was complete before startEvent.
 */
ACL_FUNC_VISIBILITY aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent,
                                                   aclrtEvent endEvent);

/**
 * Gives the moment an event was completed.
 *
 * @param timestamp  receives microseconds of a clock that runs on without jumps.
 * @return 0; 100000 a pointer is null; 107000 event dead; 107006 event not recorded or not
 *         complete.
 */
ACL_FUNC_VISIBILITY aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* timestamp);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACL_ACL_RT_H_
