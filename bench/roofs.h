// SPDX-License-Identifier: Apache-2.0
// What the machine's memory can do, by all threads that kernels may use. The operators are bound by
// memory: these are the roofs under which they run.
#ifndef ACLGRAD_BENCH_ROOFS_H_
#define ACLGRAD_BENCH_ROOFS_H_

#include <cstdint>
#include <memory>

namespace aclgrad::bench {

// Memory of a device that starts as zeros.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();
  uint8_t* get() const { return static_cast<uint8_t*>(memory_); }

 private:
  void* memory_ = nullptr;
};

class Roofs {
 public:
  // Each roof moves at least `bytes`.
  explicit Roofs(int64_t bytes);

  int64_t bytes() const { return bytes_; }
  void copy() const;  // half is read, half is written past the caches
  void read() const;  // all of it is read
  void add() const;   // two thirds are read, their sums are written past the caches

 private:
  int64_t bytes_;
  std::shared_ptr<DeviceMemory> memory_;
};

// Fused multiply-adds a second, counted as two operations each, on numbers in registers, with the
// widest vectors of the instruction set in use: the roof of arithmetic.
double peak_flops();

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_ROOFS_H_
