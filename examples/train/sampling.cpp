// SPDX-License-Identifier: Apache-2.0
#include "sampling.h"

#include <cmath>

namespace aclgrad::train {
namespace {

constexpr double kTemperature = 0.8;         // a little more likely than the model says
constexpr uint64_t kSampleStream = 0x5A3B1;  // keeps these draws apart from the weights'

// The byte at `draw`, in [0, 1), of the distribution that the scores mean.
uint8_t pick(const float* scores, double draw) {
  const double largest = static_cast<double>(*std::max_element(scores, scores + kBytes));
  double chances[kBytes], sum = 0;
  for (size_t i = 0; i < kBytes; ++i) {
    chances[i] = std::exp((static_cast<double>(scores[i]) - largest) / kTemperature);
    sum += chances[i];
  }
  double left = draw * sum;
  for (size_t i = 0; i + 1 < kBytes; ++i) {
    left -= chances[i];
    if (left < 0) return static_cast<uint8_t>(i);
  }
  return kBytes - 1;
}

// Length of the well-formed UTF-8 character of two or more bytes at `at`, or 0.
size_t utf8_length(const std::string& s, size_t at) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const unsigned lead = byte(at), next = byte(at + 1);
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0u) != 0x80u) return 0;
  }
  // Too long for what they mean, halves of pairs, beyond the last character.
  if ((lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F)) return 0;
  if ((lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next > 0x8F)) return 0;
  return length;
}

}  // namespace

std::string sample(Model& model, const ModelSize& size, const Text& text, const std::string& prompt,
                   size_t count, uint64_t seed) {
  std::string out = prompt;
  size_t begin = 0;  // of what the model sees
  for (size_t i = 0; i < count; ++i) {
    // A full row is moved by half of it. What stands behind the last byte does not matter.
    if (out.size() - begin > size.context) begin = out.size() - size.context / 2;
    std::vector<uint8_t> row(size.context);
    std::copy(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(), row.begin());
    model.forward(row.data(), text.sequence_ends(row));
    const float* scores = model.scores() + (out.size() - begin - 1) * kBytes;
    out += static_cast<char>(pick(scores, fraction(seed ^ kSampleStream, i)));
  }
  return out;
}

std::string printable(const std::string& bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size();) {
    const size_t length = utf8_length(bytes, i);
    const bool ascii = bytes[i] == '\n' || (bytes[i] >= ' ' && bytes[i] <= '~');
    out += length > 0 ? bytes.substr(i, length) : std::string(1, ascii ? bytes[i] : '?');
    i += std::max<size_t>(length, 1);
  }
  return out;
}

}  // namespace aclgrad::train
