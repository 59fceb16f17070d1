// SPDX-License-Identifier: Apache-2.0
// Loads every library name of the toolkit into one process, as Python extensions do: all handles
// must lead to the same functions, so state lives once.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char* const kLibraries[] = {
    "libopapi_transformer.so", "libopapi_math.so", "libopapi_nn.so", "libopapi.so",
    "libnnopbase.so",          "libacl_rt.so",     "libascendcl.so",
};
enum { kLibraryCount = sizeof kLibraries / sizeof kLibraries[0], kOperatorLibraryCount = 4 };

static int failures = 0;

static void expect(int holds, const char* what, const char* library) {
  if (!holds) {
    printf("%s: %s\n", library, what);
    ++failures;
  }
}

// RTLD_LOCAL: what one handle finds, it finds through its own dependencies.
static void load_all(void** handles) {
  for (int i = 0; i < kLibraryCount; ++i) {
    handles[i] = dlopen(kLibraries[i], RTLD_NOW | RTLD_LOCAL);
    if (handles[i] == NULL) {
      printf("%s\n", dlerror());
      ++failures;
    }
  }
}

static void compare_symbol(void** handles, const char* name, int library_count) {
  void* const first = dlsym(handles[0], name);
  for (int i = 0; i < library_count; ++i) {
    void* const found = dlsym(handles[i], name);
    expect(found != NULL, name, kLibraries[i]);
    expect(found == first, "another copy of a function", kLibraries[i]);
  }
}

static void call_across(void** handles) {
  int (*count)(unsigned*) = NULL;
  int (*set_device)(int) = NULL;
  int (*get_device)(int*) = NULL;
  *(void**)&count = dlsym(handles[5], "aclrtGetDeviceCount");
  *(void**)&set_device = dlsym(handles[5], "aclrtSetDevice");
  *(void**)&get_device = dlsym(handles[0], "aclrtGetDevice");
  unsigned devices = 0;
  int device = -1;
  expect(count != NULL && count(&devices) == 0 && devices > 0, "no device", kLibraries[5]);
  expect(set_device != NULL && set_device(0) == 0, "aclrtSetDevice fails", kLibraries[5]);
  expect(get_device != NULL && get_device(&device) == 0 && device == 0,
         "does not know the device set through another handle", kLibraries[0]);
}

int main(void) {
  void* handles[kLibraryCount];
  load_all(handles);
  if (failures > 0) return 1;
  compare_symbol(handles, "aclnnGroupedBiasAddGradV2", kOperatorLibraryCount);
  compare_symbol(handles, "aclCreateTensor", kOperatorLibraryCount + 1);
  compare_symbol(handles, "aclrtMalloc", kLibraryCount);
  compare_symbol(handles, "aclGetRecentErrMsg", kLibraryCount);
  call_across(handles);
  static const char* const kAbsent[] = {
      "PTAGetExecCache",           "InitPTACacheThreadLocal",   "SetPTAHashKey",   "CanUsePTACache",
      "AddTensorAddrToCachedList", "UnInitPTACacheThreadLocal", "PTAFindExecCache"};
  for (int i = 0; i < kLibraryCount; ++i) {
    for (size_t k = 0; k < sizeof kAbsent / sizeof kAbsent[0]; ++k) {
      expect(dlsym(handles[i], kAbsent[k]) == NULL, kAbsent[k], kLibraries[i]);
    }
  }
  printf(failures == 0 ? "one state behind %d names\n" : "failed\n", (int)kLibraryCount);
  return failures != 0;
}
