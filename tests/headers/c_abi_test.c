// SPDX-License-Identifier: Apache-2.0
// A C11 program that calls every function of the interface once with null and zero arguments and
// compares the status. Runs on a thread that has set neither a device nor a context.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_embedding.h"
#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "aclnnop/aclnn_layer_norm.h"
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "aclnnop/aclnn_nsa_compress.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"

enum {
  kNullPointer = 161001,
  kInnerNullPointer = 561103,
};

static int checks = 0;
static int failures = 0;

static void expect(const char* call, long long got, long long expected) {
  ++checks;
  if (got == expected) return;
  ++failures;
  const char* message = aclGetRecentErrMsg();
  printf("%s gives %lld, expected %lld: %s\n", call, got, expected,
         message ? message : "no message");
}

// A refusal has the documented status and leaves a message of this thread that names the function.
static void refuse(const char* call, long long got, long long expected) {
  expect(call, got, expected);
  if (expected == 0) return;
  char name[64];
  const size_t length = strcspn(call, "(");
  snprintf(name, sizeof(name), "%.*s", (int)length, call);
  // Operators are named without their phase.
  char* phase = strstr(name, "GetWorkspaceSize");
  if (phase != NULL) *phase = '\0';
  const char* message = aclGetRecentErrMsg();
  ++checks;
  if (message != NULL && strstr(message, name) != NULL) return;
  ++failures;
  printf("%s leaves the message: %s\n", call, message ? message : "none");
}

// The call's text, and what it gives.
#define CALL(call) #call, (call)

static void call_process_functions(void) {
  expect(CALL(aclFinalize()), ACL_SUCCESS);
  refuse(CALL(aclInit("/no/such/file")), ACL_ERROR_INVALID_FILE);
  expect(CALL(aclInit(NULL)), ACL_SUCCESS);
  expect(CALL(aclInit(NULL)), ACL_ERROR_REPEAT_INITIALIZE);
  expect(CALL(aclFinalize()), ACL_SUCCESS);
  expect(CALL(aclFinalize()), ACL_ERROR_REPEAT_FINALIZE);
  expect(CALL(aclInit(NULL)), ACL_SUCCESS);
  expect(CALL(aclFinalizeReference(NULL)), ACL_SUCCESS);
  expect(CALL(aclInit(NULL)), ACL_SUCCESS);
  (void)aclGetRecentErrMsg();

  refuse(CALL(aclrtGetVersion(NULL, NULL, NULL)), ACL_ERROR_INVALID_PARAM);
  int32_t version[3] = {-1, -1, -1};
  expect(CALL(aclrtGetVersion(&version[0], &version[1], &version[2])), ACL_SUCCESS);
  expect(CALL(version[0]), ACL_MAJOR_VERSION);
  expect(CALL(version[1]), ACL_MINOR_VERSION);
  expect(CALL(version[2]), ACL_PATCH_VERSION);
  expect(CALL(strcmp(aclrtGetSocName(), "Ascend910B1")), 0);
  refuse(CALL(aclsysGetVersionStr(NULL, NULL)), ACL_ERROR_INVALID_PARAM);

  expect(CALL(aclGetRecentErrMsg() == NULL), 1);
  (void)aclrtGetLastError(ACL_RT_THREAD_LEVEL);
  refuse(CALL(aclrtFree(NULL)), ACL_ERROR_INVALID_PARAM);
  expect(CALL(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL)), ACL_ERROR_INVALID_PARAM);
  expect(CALL(aclrtGetLastError(ACL_RT_THREAD_LEVEL)), ACL_ERROR_INVALID_PARAM);
  expect(CALL(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL)), ACL_SUCCESS);

  aclAppLog(ACL_INFO, NULL, NULL, 0, NULL);
  ACL_APP_LOG(ACL_DEBUG, "a line without values");
  ACL_APP_LOG(ACL_ERROR, "a line with %d values: %s", 2, "this one too");
}

static void call_base_functions(void) {
  refuse(CALL(aclGetCannAttribute(ACL_CANN_ATTR_INF_NAN, NULL)), ACL_ERROR_INVALID_PARAM);
  int32_t attribute = -1;
  refuse(CALL(aclGetCannAttribute(ACL_CANN_ATTR_UNDEFINED, &attribute)), ACL_ERROR_INVALID_PARAM);
  expect(CALL(aclGetCannAttribute(ACL_CANN_ATTR_BF16, &attribute)), ACL_SUCCESS);
  expect(CALL(attribute), 1);
  refuse(CALL(aclGetCannAttributeList(NULL, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclGetDeviceCapability(0, ACL_DEVICE_INFO_AI_CORE_NUM, NULL)),
         ACL_ERROR_INVALID_PARAM);
  expect(CALL((long long)aclDataTypeSize(ACL_FLOAT)), 4);
  expect(CALL((long long)aclDataTypeSize(ACL_DT_UNDEFINED)), 0);
  expect(CALL(aclFloatToFloat16(1.0F)), 0x3C00);
  expect(CALL(aclFloat16ToFloat(0) == 0.0F), 1);

  refuse(CALL(aclDestroyDataBuffer(NULL)), ACL_ERROR_INVALID_PARAM);
  expect(CALL(aclGetDataBufferAddr(NULL) == NULL), 1);
  expect(CALL((long long)aclGetDataBufferSizeV2(NULL)), 0);
  aclDataBuffer* buffer = aclCreateDataBuffer(NULL, 0);
  expect(CALL(buffer != NULL), 1);
  expect(CALL(aclGetDataBufferAddr(buffer) == NULL), 1);
  expect(CALL((long long)aclGetDataBufferSizeV2(buffer)), 0);
  expect(CALL(aclDestroyDataBuffer(buffer)), ACL_SUCCESS);
  refuse(CALL(aclDestroyDataBuffer(buffer)), ACL_ERROR_RT_PARAM_INVALID);
}

static void call_device_functions(void) {
  refuse(CALL(aclrtGetDeviceCount(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtSetDevice(-1)), ACL_ERROR_RT_INVALID_DEVICEID);
  refuse(CALL(aclrtGetDevice(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtResetDevice(0)), ACL_ERROR_RT_PARAM_INVALID);
  refuse(CALL(aclrtSynchronizeDevice()), ACL_ERROR_RT_CONTEXT_NULL);
  refuse(CALL(aclrtSynchronizeDeviceWithTimeout(0)), ACL_ERROR_RT_CONTEXT_NULL);
  refuse(CALL(aclrtGetRunMode(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_SATURATION)),
         ACL_ERROR_FEATURE_UNSUPPORTED);
  refuse(CALL(aclrtDeviceCanAccessPeer(NULL, 0, 0)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtDeviceEnablePeerAccess(-1, 0)), ACL_ERROR_RT_INVALID_DEVICEID);

  refuse(CALL(aclrtCreateContext(NULL, 0)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtDestroyContext(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtSetCurrentContext(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtGetCurrentContext(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtCtxGetCurrentDefaultStream(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtCtxSetSysParamOpt(ACL_OPT_DETERMINISTIC, 0)), ACL_ERROR_RT_CONTEXT_NULL);
  refuse(CALL(aclrtCtxGetSysParamOpt(ACL_OPT_DETERMINISTIC, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, NULL)), ACL_ERROR_INVALID_PARAM);
  int64_t value = -1;
  refuse(CALL(aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value)),
         ACL_ERROR_RT_SYSPARAMOPT_NOT_SET);
  expect(CALL(aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, 0)), ACL_SUCCESS);
}

static void call_memory_functions(void) {
  void* address = NULL;
  refuse(CALL(aclrtMalloc(NULL, 0, ACL_MEM_MALLOC_HUGE_FIRST)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtMalloc(&address, 64, ACL_MEM_MALLOC_HUGE_FIRST)), ACL_ERROR_RT_CONTEXT_NULL);
  refuse(CALL(aclrtMallocAlign32(NULL, 0, ACL_MEM_MALLOC_HUGE_FIRST)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtMallocHost(NULL, 0)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtFree(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtFreeHost(NULL)), ACL_ERROR_INVALID_PARAM);
  expect(CALL(aclrtMemcpy(NULL, 0, NULL, 0, ACL_MEMCPY_DEFAULT)), ACL_SUCCESS);
  refuse(CALL(aclrtMemcpy(NULL, 8, NULL, 8, ACL_MEMCPY_DEFAULT)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtMemcpyAsync(NULL, 8, NULL, 8, ACL_MEMCPY_DEFAULT, NULL)),
         ACL_ERROR_INVALID_PARAM);
  expect(CALL(aclrtMemset(NULL, 0, 0, 0)), ACL_SUCCESS);
  refuse(CALL(aclrtMemset(NULL, 8, 0, 8)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtMemsetAsync(NULL, 8, 0, 8, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtGetMemInfo(ACL_DDR_MEM, NULL, NULL)), ACL_ERROR_INVALID_PARAM);
}

static void call_stream_functions(void) {
  refuse(CALL(aclrtCreateStream(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtCreateStreamWithConfig(NULL, 0, 0)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtDestroyStream(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtDestroyStreamForce(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtSynchronizeStream(NULL)), ACL_ERROR_RT_CONTEXT_NULL);
  refuse(CALL(aclrtSynchronizeStreamWithTimeout(NULL, 0)), ACL_ERROR_RT_CONTEXT_NULL);
  refuse(CALL(aclrtStreamQuery(NULL, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtStreamGetId(NULL, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtStreamWaitEvent(NULL, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtSubscribeReport(0, NULL)), ACL_ERROR_RT_CONTEXT_NULL);
  refuse(CALL(aclrtUnSubscribeReport(0, NULL)), ACL_ERROR_RT_CONTEXT_NULL);
  refuse(CALL(aclrtProcessReport(0)), ACL_ERROR_RT_THREAD_SUBSCRIBE);
  refuse(CALL(aclrtLaunchCallback(NULL, NULL, ACL_CALLBACK_NO_BLOCK, NULL)),
         ACL_ERROR_INVALID_PARAM);

  refuse(CALL(aclrtCreateEvent(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtCreateEventWithFlag(NULL, 0)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtCreateEventExWithFlag(NULL, 0)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtDestroyEvent(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtRecordEvent(NULL, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtResetEvent(NULL, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtSynchronizeEvent(NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtQueryEvent(NULL, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtQueryEventStatus(NULL, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtQueryEventWaitStatus(NULL, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtEventElapsedTime(NULL, NULL, NULL)), ACL_ERROR_INVALID_PARAM);
  refuse(CALL(aclrtEventGetTimestamp(NULL, NULL)), ACL_ERROR_INVALID_PARAM);
}

static void call_creating_functions(void) {
  aclTensor* tensor = aclCreateTensor(NULL, 0, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, NULL, 0, NULL);
  expect(CALL(tensor != NULL), 1);
  expect(CALL(aclCreateTensor(NULL, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, NULL, 0, NULL) == NULL),
         1);
  expect(CALL(aclCreateScalar(NULL, ACL_FLOAT) == NULL), 1);
  float one = 1.0F;
  aclScalar* scalar = aclCreateScalar(&one, ACL_FLOAT);
  aclIntArray* integers = aclCreateIntArray(NULL, 0);
  aclFloatArray* floats = aclCreateFloatArray(NULL, 0);
  aclBoolArray* booleans = aclCreateBoolArray(NULL, 0);
  aclTensorList* tensors = aclCreateTensorList(NULL, 0);
  aclScalarList* scalars = aclCreateScalarList(NULL, 0);

  uint64_t size = 1;
  expect(CALL(aclGetIntArraySize(integers, &size)), 0);
  expect(CALL((long long)size), 0);
  expect(CALL(aclDestroyTensor(tensor)), 0);
  expect(CALL(aclDestroyScalar(scalar)), 0);
  expect(CALL(aclDestroyIntArray(integers)), 0);
  expect(CALL(aclDestroyFloatArray(floats)), 0);
  expect(CALL(aclDestroyBoolArray(booleans)), 0);
  expect(CALL(aclDestroyTensorList(tensors)), 0);
  expect(CALL(aclDestroyScalarList(scalars)), 0);

  expect(CALL(aclDestroyTensor(NULL)), 0);
  expect(CALL(aclDestroyScalar(NULL)), 0);
  expect(CALL(aclDestroyIntArray(NULL)), 0);
  expect(CALL(aclDestroyFloatArray(NULL)), 0);
  expect(CALL(aclDestroyBoolArray(NULL)), 0);
  expect(CALL(aclDestroyTensorList(NULL)), 0);
  expect(CALL(aclDestroyScalarList(NULL)), 0);
  (void)aclGetRecentErrMsg();
}

static void call_tensor_functions(void) {
  refuse(CALL(aclInitTensor(NULL, NULL, 0, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, NULL, 0, NULL)),
         kNullPointer);
  refuse(CALL(aclGetViewShape(NULL, NULL, NULL)), kNullPointer);
  refuse(CALL(aclGetStorageShape(NULL, NULL, NULL)), kNullPointer);
  refuse(CALL(aclGetViewStrides(NULL, NULL, NULL)), kNullPointer);
  refuse(CALL(aclGetViewOffset(NULL, NULL)), kNullPointer);
  refuse(CALL(aclGetFormat(NULL, NULL)), kNullPointer);
  refuse(CALL(aclGetDataType(NULL, NULL)), kNullPointer);
  refuse(CALL(aclGetIntArraySize(NULL, NULL)), kNullPointer);
  refuse(CALL(aclGetFloatArraySize(NULL, NULL)), kNullPointer);
  refuse(CALL(aclGetBoolArraySize(NULL, NULL)), kNullPointer);
  refuse(CALL(aclGetTensorListSize(NULL, NULL)), kNullPointer);
  refuse(CALL(aclGetScalarListSize(NULL, NULL)), kNullPointer);
  refuse(CALL(aclSetRawTensorAddr(NULL, NULL)), kNullPointer);
  refuse(CALL(aclGetRawTensorAddr(NULL, NULL)), kNullPointer);

  refuse(CALL(aclSetAclOpExecutorRepeatable(NULL)), kInnerNullPointer);
  refuse(CALL(aclDestroyAclOpExecutor(NULL)), kInnerNullPointer);
  refuse(CALL(aclSetInputTensorAddr(NULL, 0, NULL, NULL)), kInnerNullPointer);
  refuse(CALL(aclSetOutputTensorAddr(NULL, 0, NULL, NULL)), kInnerNullPointer);
  refuse(CALL(aclSetTensorAddr(NULL, 0, NULL, NULL)), kInnerNullPointer);
  refuse(CALL(aclSetDynamicInputTensorAddr(NULL, 0, 0, NULL, NULL)), kInnerNullPointer);
  refuse(CALL(aclSetDynamicOutputTensorAddr(NULL, 0, 0, NULL, NULL)), kInnerNullPointer);
  refuse(CALL(aclSetDynamicTensorAddr(NULL, 0, 0, NULL, NULL)), kInnerNullPointer);
  // The aliases name the function they stand for, or themselves.
  expect(CALL(AclSetInputTensorAddr(NULL, 0, NULL, NULL)), kInnerNullPointer);
  expect(CALL(AclSetOutputTensorAddr(NULL, 0, NULL, NULL)), kInnerNullPointer);
  expect(CALL(AclSetTensorAddr(NULL, 0, NULL, NULL)), kInnerNullPointer);
  expect(CALL(AclSetDynamicInputTensorAddr(NULL, 0, 0, NULL, NULL)), kInnerNullPointer);
  expect(CALL(AclSetDynamicOutputTensorAddr(NULL, 0, 0, NULL, NULL)), kInnerNullPointer);
  expect(CALL(AclSetDynamicTensorAddr(NULL, 0, 0, NULL, NULL)), kInnerNullPointer);
  (void)aclGetRecentErrMsg();
}

static void call_operator_functions(void) {
  expect(CALL(aclnnInit(NULL)), 0);
  refuse(CALL(aclnnEmbeddingGetWorkspaceSize(NULL, NULL, NULL, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnLayerNormGetWorkspaceSize(NULL, NULL, NULL, NULL, 0.0, NULL, NULL, NULL, NULL,
                                             NULL)),
         kNullPointer);
  refuse(CALL(aclnnLayerNormWithImplModeGetWorkspaceSize(NULL, NULL, NULL, NULL, 0.0, NULL, NULL,
                                                         NULL, 0, NULL, NULL)),
         kNullPointer);
  refuse(CALL(aclnnLayerNormBackwardGetWorkspaceSize(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                                     NULL, NULL, NULL, NULL, NULL)),
         kNullPointer);
  refuse(
      CALL(aclnnEmbeddingDenseBackwardGetWorkspaceSize(NULL, NULL, 0, 0, false, NULL, NULL, NULL)),
      kNullPointer);
  refuse(CALL(aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(NULL, NULL, NULL, 0.0, false, NULL,
                                                               NULL, NULL)),
         kNullPointer);
  refuse(CALL(aclnnScaledMaskedSoftmaxGetWorkspaceSize(NULL, NULL, 0.0, false, NULL, NULL, NULL)),
         kNullPointer);
  refuse(CALL(aclnnGroupedBiasAddGradGetWorkspaceSize(NULL, NULL, NULL, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnGroupedBiasAddGradV2GetWorkspaceSize(NULL, NULL, 0, NULL, NULL, NULL)),
         kNullPointer);
  refuse(CALL(aclnnNsaCompressGradGetWorkspaceSize(NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL,
                                                   NULL, NULL, NULL)),
         kNullPointer);
  refuse(CALL(aclnnNsaCompressGetWorkspaceSize(NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL)),
         kNullPointer);
  refuse(CALL(aclnnEmbedding(NULL, 0, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnLayerNorm(NULL, 0, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnLayerNormWithImplMode(NULL, 0, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnLayerNormBackward(NULL, 0, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnEmbeddingDenseBackward(NULL, 0, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnScaledMaskedSoftmaxBackward(NULL, 0, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnScaledMaskedSoftmax(NULL, 0, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnGroupedBiasAddGrad(NULL, 0, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnGroupedBiasAddGradV2(NULL, 0, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnNsaCompressGrad(NULL, 0, NULL, NULL)), kNullPointer);
  refuse(CALL(aclnnNsaCompress(NULL, 0, NULL, NULL)), kNullPointer);
  expect(CALL(aclnnFinalize()), 0);
  expect(CALL(aclnnFinalize()), 0);
}

int main(void) {
  call_process_functions();
  call_base_functions();
  call_device_functions();
  call_memory_functions();
  call_stream_functions();
  call_creating_functions();
  call_tensor_functions();
  call_operator_functions();
  printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 && checks > 150 ? EXIT_SUCCESS : EXIT_FAILURE;
}
