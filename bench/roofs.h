// SPDX-License-Identifier: Apache-2.0
// What the memory of a device can do: of the CPU by all threads that kernels may use. The operators
// are bound by memory: these are the roofs under which they run.
#ifndef ACLGRAD_BENCH_ROOFS_H_
#define ACLGRAD_BENCH_ROOFS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

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

// Seconds that moving a problem's bytes takes.
class Roofs {
 public:
  virtual ~Roofs() = default;
  virtual double copy() = 0;  // half is read, half is written past the caches
  virtual double read() = 0;  // all of it is read
  virtual double add() = 0;   // two thirds are read, their sums are written past the caches
};
// Of the device in use, for a problem that is measured in so many copies.
std::unique_ptr<Roofs> make_roofs(int64_t bytes, size_t copies);

// Bytes that together leave the caches of the device in use.
int64_t bytes_beyond_caches();

// What tables say of the device in use.
struct Machine {
  std::string name;
  std::string target;  // instruction set, or "cuda"
  int units = 0;       // threads, or multiprocessors
  // Fused multiply-adds a second, counted as two operations each, on numbers in registers: the roof
  // of arithmetic.
  double peak_flops = 0;
};
Machine this_machine();

// What the threads together reach of those at this moment, looked at for about a millisecond. 0 on
// a GPU.
double flops_now();

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_ROOFS_H_
