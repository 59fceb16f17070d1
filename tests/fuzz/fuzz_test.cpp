// SPDX-License-Identifier: Apache-2.0
// fuzz_test [--seconds N] [--seed S] [--count N]: draws calls of all operators, good and bad, and
// compares status, message and numbers with the references, the bits with every instruction set.
// Call i is a function of seed + i alone, so a failure is repeated by its own seed and --count 1.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "acl/acl.h"
#include "fuzz/operators.h"
#include "support/compare.h"
#include "support/targets.h"

namespace aclgrad::fuzz {
namespace {

struct Options {
  double seconds = 15;
  uint64_t seed = std::random_device()();
  int64_t count = -1;  // no limit
};
Options options;

void expect_refused(const Attempt& attempt) {
  test::expect_refused(attempt.plan, attempt.status, {attempt.function + ": ", attempt.named});
  for (const TensorPointer& output : attempt.outputs) {
    EXPECT_TRUE(output->untouched_outside()) << "a refused call wrote";
  }
}

// One run on the instruction set in use, with its own number of threads.
void run_once(const Attempt& attempt, bool first, std::vector<std::vector<uint8_t>>& bits) {
  const test::Outcome outcome = test::run(attempt.plan, attempt.execute);
  EXPECT_EQ(outcome.phase_one, kOk) << outcome;
  EXPECT_EQ(outcome.phase_two, kOk) << outcome;
  EXPECT_EQ(outcome.synchronise, attempt.synchronise) << outcome;
  if (attempt.synchronise != ACL_SUCCESS) {
    test::expect_message(outcome.message, {attempt.function, attempt.reported});
  }
  if (::testing::Test::HasFailure()) return;
  for (const TensorPointer& input : attempt.inputs) EXPECT_TRUE(input->untouched_outside());
  for (const TensorPointer& output : attempt.outputs) EXPECT_TRUE(output->untouched_outside());
  if (first) attempt.check();
  for (size_t i = 0; i < attempt.outputs.size(); ++i) {
    if (first) {
      bits.push_back(attempt.outputs[i]->bits());
    } else {
      test::expect_same_bits("output " + std::to_string(i), attempt.outputs[i]->bits(), bits[i]);
    }
  }
}

// Inputs as they were before a run in place, outputs poisoned.
void restore(const Attempt& attempt, const std::vector<std::vector<uint8_t>>& inputs) {
  for (const TensorPointer& output : attempt.outputs) output->poison();
  for (size_t i = 0; i < attempt.inputs.size(); ++i) attempt.inputs[i]->fill_bits(inputs[i]);
}

void run_attempt(const Attempt& attempt, Random& random) {
  if (attempt.status != kOk) {
    expect_refused(attempt);
    return;
  }
  std::vector<std::vector<uint8_t>> inputs;
  for (const TensorPointer& input : attempt.inputs) inputs.push_back(input->bits());
  std::vector<std::vector<uint8_t>> bits;
  const int threads = aclgrad_threads();
  bool first = true;
  test::for_each_target([&](const std::string&) {
    if (::testing::Test::HasFailure()) return;
    aclgrad_use_threads(static_cast<int>(random.integer(1, 4)));
    restore(attempt, inputs);
    run_once(attempt, first, bits);
    first = false;
  });
  aclgrad_use_threads(threads);
}

TEST(Fuzz, AllOperators) {
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  int64_t calls = 0;
  int64_t refused = 0;
  int64_t reported = 0;
  for (; calls != options.count && (options.count > 0 || elapsed() < options.seconds); ++calls) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(calls);
    Random random(seed);
    const Attempt attempt = random.pick(kOperators)(random);
    SCOPED_TRACE(attempt.function + attempt.text);
    SCOPED_TRACE("replay: fuzz_test --count 1 --seed " + std::to_string(seed));
    run_attempt(attempt, random);
    if (HasFailure()) return;
    refused += attempt.status != kOk ? 1 : 0;
    reported += attempt.synchronise != ACL_SUCCESS ? 1 : 0;
  }
  std::printf("%lld calls from seed %llu on: %lld refused, %lld with data errors\n",
              static_cast<long long>(calls), static_cast<unsigned long long>(options.seed),
              static_cast<long long>(refused), static_cast<long long>(reported));
  EXPECT_GT(calls, 0);
}

bool parse(int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return false;
    char* end = nullptr;
    const std::string name = argv[i];
    if (name == "--seconds") {
      options.seconds = std::strtod(argv[i + 1], &end);
    } else if (name == "--seed") {
      options.seed = std::strtoull(argv[i + 1], &end, 0);
    } else if (name == "--count") {
      options.count = std::strtoll(argv[i + 1], &end, 10);
    } else {
      return false;
    }
    if (*end != '\0' || end == argv[i + 1]) return false;
  }
  return true;
}

}  // namespace
}  // namespace aclgrad::fuzz

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!aclgrad::fuzz::parse(argc, argv)) {
    std::fprintf(stderr, "usage: fuzz_test [--seconds N] [--seed S] [--count N]\n");
    return 2;
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(aclgrad::fuzz::options.seed));
  return RUN_ALL_TESTS();
}
