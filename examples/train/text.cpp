// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "parameters.h"

namespace aclgrad::train {
namespace {

constexpr size_t kLeastSequence = 48;       // one window of 32 and a start for a second
constexpr size_t kHeldOutShare = 20;        // one byte of twenty
constexpr size_t kLeastRows = 8;            // rows of a text that is worth training on
constexpr uint64_t kBatchStream = 0xBA7C4;  // keeps these draws apart from the weights'

std::vector<uint8_t> read_bytes(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    throw std::runtime_error("cannot read the text " + path + ": " + std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) throw std::runtime_error("the text " + path + " is a folder");
  // A device may never end.
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode)) {
    throw std::runtime_error("the text " + path + " is no file");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)),
                             std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) {
    throw std::runtime_error("cannot read the text " + path + ": " + std::strerror(errno));
  }
  return bytes;
}

double entropy_term(double count, double of) {
  return count == 0 ? 0 : -count * std::log(count / of);
}

}  // namespace

Text::Text(const std::string& path, size_t context) : context_(context), bytes_(read_bytes(path)) {
  const size_t needed = kLeastRows * (context + 1);
  if (bytes_.empty()) throw std::runtime_error("the text " + path + " is empty");
  if (bytes_.size() < needed) {
    throw std::runtime_error("the text " + path + " is too short: it has " +
                             std::to_string(bytes_.size()) + " bytes; this model needs at least " +
                             std::to_string(needed));
  }
  const size_t held_out = std::max(bytes_.size() / kHeldOutShare, context + 1);
  training_ = bytes_.size() - held_out;
  size_t lines = 0, empty = 0;
  for (size_t i = 1; i < bytes_.size(); ++i) {
    lines += bytes_[i] == '\n';
    empty += bytes_[i] == '\n' && bytes_[i - 1] == '\n';
  }
  constexpr size_t kLinesPerEmptyLine = 100;  // a stray empty line does not count
  empty_lines_ = empty * kLinesPerEmptyLine > lines;
  count_entropies();
}

uint64_t Text::hash() const { return hash_bytes(bytes_.data(), bytes_.size()); }

void Text::count_entropies() {
  std::array<double, kBytes> single = {}, before = {};
  std::vector<double> pairs(kBytes * kBytes);
  for (size_t i = 0; i < bytes_.size(); ++i) {
    ++single[bytes_[i]];
    if (i == 0) continue;
    ++before[bytes_[i - 1]];
    ++pairs[bytes_[i - 1] * kBytes + bytes_[i]];
  }
  const auto count = static_cast<double>(bytes_.size());
  for (size_t a = 0; a < kBytes; ++a) {
    unigram_ += entropy_term(single[a], count) / count;
    for (size_t b = 0; b < kBytes; ++b) {
      bigram_ += entropy_term(pairs[a * kBytes + b], before[a]) / (count - 1);
    }
  }
}

bool Text::ends_paragraph(const uint8_t* row, size_t at) const {
  if (row[at] != '\n') return false;
  return !empty_lines_ || (at > 0 && row[at - 1] == '\n');
}

std::vector<int64_t> Text::sequence_ends(const std::vector<uint8_t>& rows) const {
  std::vector<int64_t> ends;
  for (size_t begin = 0; begin < rows.size(); begin += context_) {
    size_t sequence = 0;
    for (size_t i = 0; i < context_; ++i) {
      ++sequence;
      const bool long_enough = sequence >= kLeastSequence && ends_paragraph(&rows[begin], i);
      if (!long_enough && i + 1 < context_) continue;
      ends.push_back(static_cast<int64_t>(begin + i + 1));
      sequence = 0;
    }
  }
  return ends;
}

Batch Text::batch_at(const std::vector<size_t>& starts) const {
  Batch batch;
  for (const size_t start : starts) {
    const auto first = bytes_.begin() + static_cast<std::ptrdiff_t>(start);
    const auto length = static_cast<std::ptrdiff_t>(context_);
    batch.bytes.insert(batch.bytes.end(), first, first + length);
    batch.targets.insert(batch.targets.end(), first + 1, first + 1 + length);
  }
  batch.sequence_ends = sequence_ends(batch.bytes);
  return batch;
}

Batch Text::training_batch(uint64_t seed, uint64_t step, size_t rows) const {
  std::vector<size_t> starts;
  const size_t places = training_ - context_;
  for (size_t row = 0; row < rows; ++row) {
    starts.push_back(scramble(seed ^ kBatchStream, step, row) % places);
  }
  return batch_at(starts);
}

Batch Text::held_out_batch(size_t number, size_t count, size_t rows) const {
  std::vector<size_t> starts;
  const size_t last = held_out_size() - context_ - 1;
  const size_t all = count * rows;
  for (size_t row = 0; row < rows; ++row) {
    const size_t at = all == 1 ? 0 : last * (number * rows + row) / (all - 1);
    starts.push_back(training_ + at);
  }
  return batch_at(starts);
}

}  // namespace aclgrad::train
