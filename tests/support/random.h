// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same everywhere, from a seed that can be given again:
//   ACLGRAD_TEST_SEED=123 some_test --gtest_filter=...
// Draw into named variables: compilers differ in the order in which they evaluate two draws that
// are arguments of one call or operands of one sum.
#ifndef ACLGRAD_TESTS_SUPPORT_RANDOM_H_
#define ACLGRAD_TESTS_SUPPORT_RANDOM_H_

#include <cmath>
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

// Normal numbers, and among the terms of each sum a few pairs of 2^e and -2^e with e in [low,
// high]. While one of a pair is in the sum without the other, what is added loses its last bits, so
// that the sum shows in which order it was made: FP64 keeps 53 bits, FP32 24. `sum_of(i)`, from 0
// on, is the number of the sum that element i is a term of.
template <class SumOf>
std::vector<double> cancelling_values(int64_t count, uint64_t seed, int64_t low, int64_t high,
                                      SumOf&& sum_of) {
  constexpr int kMostPairs = 4;  // in a sum, at most
  Random random(seed);
  std::vector<double> out = normal_values(count, seed + 1);
  std::vector<std::vector<size_t>> sums;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t sum = static_cast<size_t>(sum_of(i));
    if (sum >= sums.size()) sums.resize(sum + 1);
    sums[sum].push_back(i);
  }
  for (const std::vector<size_t>& terms : sums) {
    for (int pair = 0; terms.size() > 1 && pair < kMostPairs; ++pair) {
      const size_t first = random.pick(terms);
      const size_t second = random.pick(terms);
      const int64_t exponent = random.integer(low, high);
      // Two pairs may meet: nothing cancels what is overwritten.
      const auto taken = [&](size_t i) { return std::abs(out[i]) > 8; };
      if (first == second || taken(first) || taken(second)) continue;
      out[first] = std::ldexp(1.0, static_cast<int>(exponent));
      out[second] = -out[first];
    }
  }
  return out;
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_RANDOM_H_
