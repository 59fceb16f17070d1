// SPDX-License-Identifier: Apache-2.0
// Shapes with windows over sequences of tokens: "65536x4x128-l32-d16", tokens x heads x width with
// windows of 32 tokens every 16; "...-s64", in 64 sequences of equal length; "...-s64-uneven", of
// lengths between half and one and a half of that.
#ifndef ACLGRAD_BENCH_WINDOWS_H_
#define ACLGRAD_BENCH_WINDOWS_H_

#include <charconv>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "bench/bench.h"

namespace aclgrad::bench {

struct WindowShape {
  Dims rows;  // tokens, heads, width
  int64_t window, step;
  Dims ends;  // of the sequences
};

// Throws std::invalid_argument when it is no such shape.
inline WindowShape parse_windows(const std::string& name) {
  std::string shape = name;
  const auto expect = [&](bool good) {
    if (good) return;
    throw std::invalid_argument("shape '" + name +
                                "': expected TxNxD-l<window>-d<step>, then maybe "
                                "-s<sequences>, then maybe -uneven");
  };
  // Takes "-<key><number>" off the end; nothing when it does not end that way.
  const auto take_suffix = [&](const std::string& key) -> std::optional<int64_t> {
    const size_t at = shape.rfind('-');
    if (at == std::string::npos || shape.compare(at + 1, key.size(), key) != 0) return std::nullopt;
    int64_t value = 0;
    const char* const end = shape.data() + shape.size();
    const auto [next, error] = std::from_chars(shape.data() + at + 1 + key.size(), end, value);
    expect(error == std::errc() && next == end && value > 0);
    shape.erase(at);
    return value;
  };
  const std::string kUneven = "-uneven";
  const bool uneven = shape.ends_with(kUneven);
  if (uneven) shape.erase(shape.size() - kUneven.size());
  const int64_t sequences = take_suffix("s").value_or(1);
  const std::optional<int64_t> step = take_suffix("d");
  const std::optional<int64_t> window = take_suffix("l");
  expect(step.has_value() && window.has_value());
  WindowShape out{parse_dims(shape, 3), *window, *step, {}};
  for (int64_t i = 1; i <= sequences; ++i) {
    // By turns of four: where it was, a quarter of a length early, there, a quarter late.
    const int64_t shift = uneven && i < sequences ? (i % 4 - 2) * (out.rows[0] / sequences / 4) : 0;
    out.ends.push_back(out.rows[0] * i / sequences + shift);
  }
  return out;
}

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_WINDOWS_H_
