// SPDX-License-Identifier: Apache-2.0
// The C boundary: start and stop, versions, attributes, messages, half floats. Here as in the other
// api files, an enumeration becomes an int at once: a C program may pass any number.
#include <sys/stat.h>

#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "acl/acl.h"
#include "base/half.h"
#include "base/status.h"
#include "base/thread_messages.h"
#include "base/verbose.h"
#include "runtime/api.h"
#include "runtime/backend.h"
#include "runtime/settings.h"

namespace aclgrad {
namespace {

constinit std::mutex init_mutex;
constinit uint64_t init_count = 0;
constinit bool finalized = false;

// "1.17.0"
void write_version(char* out) {
  // The published size of the buffer.
  constexpr size_t kVersionSize = 128;
  std::snprintf(out, kVersionSize, "%d.%d.%d", ACL_MAJOR_VERSION, ACL_MINOR_VERSION,
                ACL_PATCH_VERSION);
}

Status repeated_finalize(const char* function) {
  return fail(ACL_ERROR_REPEAT_FINALIZE, "%s: finalized already, expected aclInit before",
              function);
}

Status init(const char* config_path) {
  // The contents are for other devices' tools. An empty path stands for none.
  if (config_path != nullptr && *config_path != '\0') {
    struct stat file {};
    if (::stat(config_path, &file) != 0 || S_ISDIR(file.st_mode)) {
      return fail(ACL_ERROR_INVALID_FILE,
                  "aclInit: configPath is \"%s\", expected an existing file", config_path);
    }
  }
  settings();
  const std::lock_guard lock(init_mutex);
  if (init_count++ > 0) {
    return fail(ACL_ERROR_REPEAT_INITIALIZE, "aclInit: initialised already, expected one call");
  }
  return kOk;
}

Status finalize() {
  const std::lock_guard lock(init_mutex);
  if (init_count == 0 && finalized) return repeated_finalize("aclFinalize");
  finalized = finalized || init_count > 0;
  init_count = 0;
  return kOk;
}

Status finalize_reference(uint64_t* count) {
  const std::lock_guard lock(init_mutex);
  if (init_count == 0) {
    if (count != nullptr) *count = 0;
    return finalized ? repeated_finalize("aclFinalizeReference") : kOk;
  }
  finalized = --init_count == 0;
  if (count != nullptr) *count = init_count;
  return kOk;
}

constexpr std::array<aclCannAttr, 3> kAttributes{ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16,
                                                 ACL_CANN_ATTR_JIT_COMPILE};

Status attribute(int name, int32_t* value) {
  if (value == nullptr) return null_parameter("aclGetCannAttribute", "value");
  switch (name) {
    case ACL_CANN_ATTR_INF_NAN:
    case ACL_CANN_ATTR_BF16:
      *value = 1;
      return kOk;
    case ACL_CANN_ATTR_JIT_COMPILE:
      *value = 0;
      return kOk;
    default:
      return fail(ACL_ERROR_INVALID_PARAM,
                  "aclGetCannAttribute: cannAttr is %d, expected one of aclGetCannAttributeList",
                  name);
  }
}

Status capability(uint32_t device, int info, int64_t* value) {
  constexpr const char* kName = "aclGetDeviceCapability";
  if (value == nullptr) return null_parameter(kName, "value");
  if (device >= static_cast<uint32_t>(settings().devices)) {
    return fail(ACL_ERROR_RT_INVALID_DEVICEID, "%s: deviceId is %u, expected less than %d", kName,
                device, settings().devices);
  }
  switch (info) {
    case ACL_DEVICE_INFO_AI_CORE_NUM:
    case ACL_DEVICE_INFO_VECTOR_CORE_NUM:
      *value = backend().compute_units(static_cast<int32_t>(device));
      return kOk;
    case ACL_DEVICE_INFO_L2_SIZE:
      *value = backend().cache_bytes(static_cast<int32_t>(device));
      return kOk;
    default:
      return fail(ACL_ERROR_INVALID_PARAM,
                  "%s: deviceInfo is %d, expected an ACL_DEVICE_INFO_ name", kName, info);
  }
}

Status check_level(const char* function, int level) {
  if (level == ACL_RT_THREAD_LEVEL) return kOk;
  return fail(ACL_ERROR_INVALID_PARAM, "%s: level is %d, expected ACL_RT_THREAD_LEVEL", function,
              level);
}

// One line of a program's own log, shown with ACLGRAD_VERBOSE=1.
[[gnu::format(printf, 5, 0)]] void log_line(aclLogLevel level, const char* function,
                                            const char* file, uint32_t line, const char* format,
                                            va_list arguments) {
  constexpr const char* kLevels[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
  const auto index = static_cast<size_t>(level);
  char text[768];
  const int start = std::snprintf(
      text, sizeof text,
      "aclgrad: log %s %s:%u %s: ", index < std::size(kLevels) ? kLevels[index] : "LOG",
      file == nullptr ? "" : file, line, function == nullptr ? "" : function);
  if (start < 0) return;
  const auto used =
      static_cast<size_t>(start) < sizeof text ? static_cast<size_t>(start) : sizeof text - 1;
  std::vsnprintf(text + used, sizeof text - used, format, arguments);
  aclgrad_print_line(text);
}

// The published conversion saturates: the largest finite number stands for Inf and NaN.
constexpr aclFloat16 kLargestHalf = 0x7BFF;
constexpr aclFloat16 kHalfSign = 0x8000;
constexpr aclFloat16 kHalfInfinity = 0x7C00;

}  // namespace
}  // namespace aclgrad

using namespace aclgrad;

extern "C" {

aclError aclInit(const char* configPath) {
  return guarded("aclInit", ACL_ERROR_BAD_ALLOC, [&] { return init(configPath); });
}

aclError aclFinalize(void) {
  return guarded("aclFinalize", ACL_ERROR_BAD_ALLOC, [] { return finalize(); });
}

aclError aclFinalizeReference(uint64_t* refCount) {
  return guarded("aclFinalizeReference", ACL_ERROR_BAD_ALLOC,
                 [&] { return finalize_reference(refCount); });
}

aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion) {
  return guarded("aclrtGetVersion", ACL_ERROR_BAD_ALLOC, [&] {
    if (majorVersion == nullptr) return null_parameter("aclrtGetVersion", "majorVersion");
    if (minorVersion == nullptr) return null_parameter("aclrtGetVersion", "minorVersion");
    if (patchVersion == nullptr) return null_parameter("aclrtGetVersion", "patchVersion");
    *majorVersion = ACL_MAJOR_VERSION;
    *minorVersion = ACL_MINOR_VERSION;
    *patchVersion = ACL_PATCH_VERSION;
    return kOk;
  });
}

const char* aclrtGetSocName(void) { return "Ascend910B1"; }

aclError aclsysGetVersionStr(char* pkgName, char* versionStr) {
  return guarded("aclsysGetVersionStr", ACL_ERROR_BAD_ALLOC, [&] {
    if (pkgName == nullptr) return null_parameter("aclsysGetVersionStr", "pkgName");
    if (versionStr == nullptr) return null_parameter("aclsysGetVersionStr", "versionStr");
    if (*pkgName == '\0') {
      return fail(ACL_ERROR_INVALID_PARAM,
                  "aclsysGetVersionStr: pkgName is empty, expected a package's name");
    }
    write_version(versionStr);
    return kOk;
  });
}

const char* aclGetRecentErrMsg(void) { return take_messages(); }

aclError aclrtGetLastError(aclrtLastErrLevel level) {
  return guarded("aclrtGetLastError", ACL_ERROR_BAD_ALLOC, [number = static_cast<int>(level)] {
    if (const Status status = check_level("aclrtGetLastError", number)) return status;
    const Status last = last_error();
    reset_last_error();
    return last;
  });
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
  return guarded("aclrtPeekAtLastError", ACL_ERROR_BAD_ALLOC, [number = static_cast<int>(level)] {
    if (const Status status = check_level("aclrtPeekAtLastError", number)) return status;
    return last_error();
  });
}

void aclAppLog(aclLogLevel logLevel, const char* func, const char* file, uint32_t line,
               const char* fmt, ...) {
  if (fmt == nullptr || !aclgrad_verbose()) return;
  va_list arguments;
  va_start(arguments, fmt);
  log_line(logLevel, func, file, line, fmt, arguments);
  va_end(arguments);
}

aclError aclGetCannAttribute(aclCannAttr cannAttr, int32_t* value) {
  return guarded("aclGetCannAttribute", ACL_ERROR_BAD_ALLOC,
                 [name = static_cast<int>(cannAttr), value] { return attribute(name, value); });
}

aclError aclGetCannAttributeList(const aclCannAttr** cannAttrList, size_t* num) {
  return guarded("aclGetCannAttributeList", ACL_ERROR_BAD_ALLOC, [&] {
    if (cannAttrList == nullptr) return null_parameter("aclGetCannAttributeList", "cannAttrList");
    if (num == nullptr) return null_parameter("aclGetCannAttributeList", "num");
    *cannAttrList = kAttributes.data();
    *num = kAttributes.size();
    return kOk;
  });
}

aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t* value) {
  return guarded("aclGetDeviceCapability", ACL_ERROR_BAD_ALLOC,
                 [deviceId, info = static_cast<int>(deviceInfo), value] {
                   return capability(deviceId, info, value);
                 });
}

size_t aclDataTypeSize(aclDataType dataType) { return dtype_size(dataType); }

aclFloat16 aclFloatToFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const aclFloat16 half = from_float<float16_t>(value).bits;
  if ((half & kHalfInfinity) != kHalfInfinity) return half;
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const bool negative = !nan && (half & kHalfSign) != 0;
  return negative ? kLargestHalf | kHalfSign : kLargestHalf;
}

float aclFloat16ToFloat(aclFloat16 value) {
  if ((value & kHalfInfinity) != kHalfInfinity) return to_float(float16_t{value});
  // Exponent 31 read as one more binade of numbers: Inf is 65536, the canonical NaN 98304.
  const auto mantissa = static_cast<uint32_t>(value & 0x3FF);
  const uint32_t sign = static_cast<uint32_t>(value & kHalfSign) << 16;
  return std::bit_cast<float>(sign | (uint32_t{31 + 112} << 23) | (mantissa << 13));
}

}  // extern "C"
