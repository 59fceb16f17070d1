// SPDX-License-Identifier: Apache-2.0
// No memory at any one place of a call that takes data errors or releases streams: the call has
// done all of its work or nothing, and no error is lost. Operator new is this program's own: it
// fails at the k-th call of a thread that asked for that.
#include <cstdlib>
#include <new>

#include "scene.h"

namespace {

thread_local int calls_until_failure = -1;  // below 0: never

}  // namespace

// Not inline, nor what deletes: g++ 12 would see free() of what operator new gave, or the other way
// round, and warn.
[[gnu::noinline]] void* operator new(size_t size) {
  if (calls_until_failure >= 0 && calls_until_failure-- == 0) throw std::bad_alloc();
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace aclgrad::test {
namespace {

constexpr aclError kDataError = ACL_ERROR_RT_AICORE_EXCEPTION;
constexpr int kPlaces = 40;  // more than any of the calls has

// Whether the call met the missing memory.
template <class Call>
bool fails_at(int place, aclError& status, Call&& call) {
  calls_until_failure = place;
  status = call();
  const bool met = calls_until_failure < 0;
  calls_until_failure = -1;
  return met;
}

aclrtStream stream_with_two_errors() {
  const aclrtStream stream = make_stream();
  const SharedGate done = make_gate();
  enqueue_error(stream, "first");
  enqueue_error(stream, "second");
  EXPECT_EQ(enqueue(stream, [done] { done->open(); }), 0);
  done->wait();
  return stream;
}

TEST(OutOfMemory, SynchroniseKeepsTheErrorsItCannotReport) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  bool met = true;
  for (int place = 0; met && place < kPlaces; ++place) {
    const aclrtStream stream = stream_with_two_errors();
    aclError status = 0;
    messages();
    met = fails_at(place, status, [&] { return aclrtSynchronizeStream(stream); });
    if (status == ACL_ERROR_BAD_ALLOC) {
      messages();
      status = aclrtSynchronizeStream(stream);
    }
    EXPECT_EQ(status, kDataError) << place;
    enqueue_error(stream, "third");
    EXPECT_EQ(aclrtSynchronizeStream(stream), kDataError) << place;
    EXPECT_TRUE(contains(messages(), "third")) << place;
    EXPECT_EQ(aclrtDestroyStream(stream), 0) << place;
  }
  EXPECT_FALSE(met) << "more places than were tried";
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

TEST(OutOfMemory, DestroyStreamReportsAllTheSame) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  bool met = true;
  for (int place = 0; met && place < kPlaces; ++place) {
    const aclrtStream stream = stream_with_two_errors();
    aclError status = 0;
    met = fails_at(place, status, [&] { return aclrtDestroyStream(stream); });
    if (status == ACL_ERROR_BAD_ALLOC) status = aclrtDestroyStream(stream);
    EXPECT_EQ(status, kDataError) << place;
    EXPECT_EQ(aclrtDestroyStream(stream), ACL_ERROR_RT_STREAM_CONTEXT) << place;
  }
  EXPECT_FALSE(met) << "more places than were tried";
  EXPECT_EQ(aclrtResetDevice(0), 0);
  messages();
}

TEST(OutOfMemory, DestroyContextTakesAllStreams) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  bool met = true;
  for (int place = 0; met && place < kPlaces; ++place) {
    aclrtContext context = nullptr;
    ASSERT_EQ(aclrtCreateContext(&context, 0), 0);
    const aclrtStream streams[] = {stream_with_two_errors(), make_stream()};
    aclError status = 0;
    met = fails_at(place, status, [&] { return aclrtDestroyContext(context); });
    if (status == ACL_ERROR_BAD_ALLOC) status = aclrtDestroyContext(context);
    EXPECT_EQ(status, kDataError) << place;
    for (const aclrtStream stream : streams) {
      EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_ERROR_RT_STREAM_CONTEXT) << place;
    }
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ASSERT_EQ(aclrtResetDevice(0), 0);
  }
  EXPECT_FALSE(met) << "more places than were tried";
  EXPECT_EQ(aclrtResetDevice(0), 0);
  messages();
}

TEST(OutOfMemory, ResetDeviceReleasesAllOrNothing) {
  bool met = true;
  for (int place = 0; met && place < kPlaces; ++place) {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    aclrtStream stream = nullptr;
    ASSERT_EQ(aclrtCtxGetCurrentDefaultStream(&stream), 0);
    const aclrtStream other = stream_with_two_errors();
    aclError status = 0;
    met = fails_at(place, status, [&] { return aclrtResetDevice(0); });
    if (status == ACL_ERROR_BAD_ALLOC) status = aclrtResetDevice(0);
    EXPECT_EQ(status, kDataError) << place;
    EXPECT_EQ(aclrtResetDevice(0), ACL_ERROR_RT_PARAM_INVALID) << place;
    for (const aclrtStream each : {stream, other}) {
      EXPECT_EQ(aclrtSynchronizeStream(each), ACL_ERROR_RT_STREAM_CONTEXT) << place;
    }
  }
  EXPECT_FALSE(met) << "more places than were tried";
  messages();
}

}  // namespace
}  // namespace aclgrad::test
