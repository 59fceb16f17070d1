// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same everywhere, from a seed that can be given again:
//   ACLGRAD_TEST_SEED=123 some_test --gtest_filter=...
// Draw into named variables: compilers differ in the order in which they evaluate two draws that
// are arguments of one call or operands of one sum.
#ifndef ACLGRAD_TESTS_SUPPORT_RANDOM_H_
#define ACLGRAD_TESTS_SUPPORT_RANDOM_H_

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

namespace aclgrad::test {

// splitmix64: any seed will do, neighbouring ones included.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform(double low = 0.0, double high = 1.0) {
    return low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53);
  }
  // Twelve uniform numbers less six, which differs from the normal distribution by its ends at -6
  // and 6: the logarithm and the cosine that would give those too are not everywhere the same.
  double normal(double mean = 0.0, double deviation = 1.0) {
    int64_t sum = -6 * (int64_t{1} << 32);
    for (int i = 0; i < 6; ++i) {
      const uint64_t two = bits();
      sum += static_cast<int64_t>(two >> 32) + static_cast<int64_t>(two & 0xFFFFFFFFu);
    }
    return mean + deviation * (static_cast<double>(sum) * 0x1p-32);
  }
  // Both ends included.
  int64_t integer(int64_t low, int64_t high) {
    const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
    return static_cast<int64_t>(static_cast<uint64_t>(low) + (span == 0 ? bits() : bits() % span));
  }
  bool chance(double probability) { return uniform() < probability; }
  template <class Range>
  auto pick(const Range& range) {
    return *(std::begin(range) + integer(0, std::ssize(range) - 1));
  }

 private:
  uint64_t state_;
};

// The seed a test starts from: ACLGRAD_TEST_SEED where it is set, else the test's own.
inline uint64_t seed_of_test(uint64_t own) {
  const char* text = std::getenv("ACLGRAD_TEST_SEED");
  return text == nullptr || *text == '\0' ? own : std::strtoull(text, nullptr, 0);
}

// "replay: ACLGRAD_TEST_SEED=123", for SCOPED_TRACE.
inline std::string replay(uint64_t seed) {
  return "replay: ACLGRAD_TEST_SEED=" + std::to_string(seed);
}

inline std::vector<double> normal_values(int64_t count, uint64_t seed, double mean = 0.0,
                                         double deviation = 1.0) {
  Random random(seed);
  std::vector<double> out(static_cast<size_t>(count));
  for (double& value : out) value = random.normal(mean, deviation);
  return out;
}

inline std::vector<double> uniform_values(int64_t count, uint64_t seed, double low, double high) {
  Random random(seed);
  std::vector<double> out(static_cast<size_t>(count));
  for (double& value : out) value = random.uniform(low, high);
  return out;
}

// Both ends included.
inline std::vector<double> integer_values(int64_t count, uint64_t seed, int64_t low, int64_t high) {
  Random random(seed);
  std::vector<double> out(static_cast<size_t>(count));
  for (double& value : out) value = static_cast<double>(random.integer(low, high));
  return out;
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_RANDOM_H_
