// SPDX-License-Identifier: Apache-2.0
// The text to learn: its bytes, what is held out, its entropies, its paragraphs, and the rows of a
// batch.
#ifndef ACLGRAD_TRAIN_TEXT_H_
#define ACLGRAD_TRAIN_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace aclgrad::train {

// Rows of `context` bytes each, end to end, and the bytes that follow each.
struct Batch {
  std::vector<uint8_t> bytes, targets;
  // Ends of the sequences: every row's end, and inside a row where a paragraph ends.
  std::vector<int64_t> sequence_ends;
};

class Text {
 public:
  // Throws when there is no such file, or too little in it for rows of `context` bytes.
  Text(const std::string& path, size_t context);
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  size_t training_size() const { return training_; }  // the bytes after these are held out
  size_t held_out_size() const { return bytes_.size() - training_; }

  uint64_t hash() const;

  // Entropy of a byte, and of a byte given the one before it, in nats; of the whole text.
  double unigram_entropy() const { return unigram_; }
  double bigram_entropy() const { return bigram_; }

  // `rows` rows from random places of the training part; a function of seed and step alone.
  Batch training_batch(uint64_t seed, uint64_t step, size_t rows) const;
  // The number-th of `count` batches spread evenly over the held-out part.
  Batch held_out_batch(size_t number, size_t count, size_t rows) const;

  // Sequence ends of rows of `context` bytes. A sequence ends with the first paragraph that leaves
  // it at least kLeastSequence bytes long: whether it ends at a byte depends on no later one.
  std::vector<int64_t> sequence_ends(const std::vector<uint8_t>& rows) const;

 private:
  void count_entropies();
  Batch batch_at(const std::vector<size_t>& starts) const;
  bool ends_paragraph(const uint8_t* row, size_t at) const;

  size_t context_;
  std::vector<uint8_t> bytes_;
  size_t training_ = 0;
  bool empty_lines_ = false;  // whether these part the paragraphs; each line is one otherwise
  double unigram_ = 0, bigram_ = 0;
};

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_TEXT_H_
