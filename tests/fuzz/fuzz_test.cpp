// SPDX-License-Identifier: Apache-2.0
// fuzz_test [--seconds N] [--seed S] [--count N] [--digests FILE]: draws calls of all operators,
// good and bad, and compares status, message and numbers with the references, the bits with every
// instruction set. Call i is a function of seed + i alone, so a failure is repeated by its own seed
// and --count 1. FILE gets a line for each call: its seed, a digest of what was drawn and one of
// what came of it, both the same on every machine.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "acl/acl.h"
#include "fuzz/operators.h"
#include "runtime/services.h"
#include "support/compare.h"
#include "support/targets.h"

namespace aclgrad::fuzz {
namespace {

struct Options {
  double seconds = 15;
  uint64_t seed = std::random_device()();
  int64_t count = -1;   // no limit
  std::string digests;  // "": none are written
};
Options options;

using Bits = std::vector<std::vector<uint8_t>>;

// FNV-1a.
class Digest {
 public:
  void add(const void* bytes, size_t size) {
    const auto* byte = static_cast<const uint8_t*>(bytes);
    for (size_t i = 0; i < size; ++i) value_ = (value_ ^ byte[i]) * 0x100000001B3u;
  }
  void add(const Bits& tensors) {
    for (const std::vector<uint8_t>& bits : tensors) add(bits.data(), bits.size());
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xCBF29CE484222325u;
};

// The lines of --digests.
class DigestFile {
 public:
  explicit DigestFile(const std::string& path) {
    if (path.empty()) return;
    file_ = std::fopen(path.c_str(), "w");
    EXPECT_NE(file_, nullptr) << path;
  }
  DigestFile(const DigestFile&) = delete;
  DigestFile& operator=(const DigestFile&) = delete;
  ~DigestFile() {
    const bool written = file_ == nullptr || std::fclose(file_) == 0;
    EXPECT_TRUE(written) << "the digests are incomplete";
  }
  // A call whose status was the expected one.
  void write(uint64_t seed, const Attempt& attempt, const Bits& inputs, const Bits& outputs) {
    if (file_ == nullptr) return;
    Digest drawn;
    drawn.add(attempt.text.data(), attempt.text.size());
    drawn.add(inputs);
    Digest result;
    const int64_t statuses[] = {attempt.status, attempt.synchronise};
    result.add(statuses, sizeof(statuses));
    result.add(outputs);
    std::fprintf(file_, "%llu %s drawn %016llx result %016llx\n",
                 static_cast<unsigned long long>(seed), attempt.function.c_str(),
                 static_cast<unsigned long long>(drawn.value()),
                 static_cast<unsigned long long>(result.value()));
  }

 private:
  std::FILE* file_ = nullptr;
};

void expect_refused(const Attempt& attempt) {
  test::expect_refused(attempt.plan, attempt.status, {attempt.function + ": ", attempt.named});
  for (const TensorPointer& output : attempt.outputs) {
    EXPECT_TRUE(output->untouched_outside()) << "a refused call wrote";
  }
}

// One run on the instruction set in use, with its own number of threads.
void run_once(const Attempt& attempt, bool first, Bits& bits) {
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
void restore(const Attempt& attempt, const Bits& inputs) {
  for (const TensorPointer& output : attempt.outputs) output->poison();
  for (size_t i = 0; i < attempt.inputs.size(); ++i) attempt.inputs[i]->fill_bits(inputs[i]);
}

// Returns the bits of the outputs; none of a call that is refused.
Bits run_attempt(const Attempt& attempt, const Bits& inputs, Random& random) {
  Bits bits;
  if (attempt.status != kOk) {
    expect_refused(attempt);
    return bits;
  }
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
  return bits;
}

TEST(Fuzz, AllOperators) {
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  DigestFile digests(options.digests);
  int64_t calls = 0;
  int64_t refused = 0;
  int64_t reported = 0;
  for (; calls != options.count && (options.count > 0 || elapsed() < options.seconds); ++calls) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(calls);
    Random random(seed);
    const Attempt attempt = random.pick(kOperators)(random);
    SCOPED_TRACE(attempt.function + attempt.text);
    SCOPED_TRACE("replay: fuzz_test --count 1 --seed " + std::to_string(seed));
    Bits inputs;
    for (const TensorPointer& input : attempt.inputs) inputs.push_back(input->bits());
    const Bits outputs = run_attempt(attempt, inputs, random);
    if (HasFailure()) return;
    digests.write(seed, attempt, inputs, outputs);
    refused += attempt.status != kOk ? 1 : 0;
    reported += attempt.synchronise != ACL_SUCCESS ? 1 : 0;
  }
  std::printf("%lld calls on %s from seed %llu on: %lld refused, %lld with data errors\n",
              static_cast<long long>(calls), aclgrad_has_device_queues() ? "cuda" : "cpu",
              static_cast<unsigned long long>(options.seed), static_cast<long long>(refused),
              static_cast<long long>(reported));
  EXPECT_GT(calls, 0);
}

bool parse(int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return false;
    char* end = argv[i + 1] + std::strlen(argv[i + 1]);
    const std::string name = argv[i];
    if (name == "--seconds") {
      options.seconds = std::strtod(argv[i + 1], &end);
    } else if (name == "--seed") {
      options.seed = std::strtoull(argv[i + 1], &end, 0);
    } else if (name == "--count") {
      options.count = std::strtoll(argv[i + 1], &end, 10);
    } else if (name == "--digests") {
      options.digests = argv[i + 1];
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
    std::fprintf(stderr,
                 "usage: fuzz_test [--seconds N] [--seed S] [--count N] [--digests FILE]\n");
    return 2;
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(aclgrad::fuzz::options.seed));
  return RUN_ALL_TESTS();
}
