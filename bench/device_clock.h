// SPDX-License-Identifier: Apache-2.0
// What a GPU took, by its own clock: two events around calls that follow each other in a stream.
#ifndef ACLGRAD_BENCH_DEVICE_CLOCK_H_
#define ACLGRAD_BENCH_DEVICE_CLOCK_H_

#include "acl/acl.h"
#include "bench/bench.h"

namespace aclgrad::bench {

class DeviceClock {
 public:
  explicit DeviceClock(aclrtStream stream) : stream_(stream) {
    require(aclrtCreateEvent(&begin_), "aclrtCreateEvent");
    require(aclrtCreateEvent(&end_), "aclrtCreateEvent");
  }
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;
  ~DeviceClock() {
    static_cast<void>(aclrtDestroyEvent(begin_));
    static_cast<void>(aclrtDestroyEvent(end_));
  }

  // Seconds of each of `repeats` calls, on average; `call` queues work on the stream.
  template <class Call>
  double seconds_of(const Call& call, int repeats) {
    require(aclrtRecordEvent(begin_, stream_), "aclrtRecordEvent");
    for (int i = 0; i < repeats; ++i) call();
    require(aclrtRecordEvent(end_, stream_), "aclrtRecordEvent");
    require(aclrtSynchronizeStream(stream_), "aclrtSynchronizeStream");
    float milliseconds = 0;
    require(aclrtEventElapsedTime(&milliseconds, begin_, end_), "aclrtEventElapsedTime");
    return static_cast<double>(milliseconds) / 1e3 / repeats;
  }

 private:
  aclrtStream stream_;
  aclrtEvent begin_ = nullptr;
  aclrtEvent end_ = nullptr;
};

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_DEVICE_CLOCK_H_
