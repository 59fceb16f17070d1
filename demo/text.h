// SPDX-License-Identifier: Apache-2.0
// A text as the operators meet it: words as indices into a vocabulary, lines, chapters, parts.
#ifndef ACLGRAD_DEMO_TEXT_H_
#define ACLGRAD_DEMO_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace aclgrad::demo {

struct Text {
  std::string name;
  bool of_bytes = false;              // it has next to no words: they are its bytes
  std::vector<int64_t> words;         // vocabulary number of each word, in the order of the text
  int64_t vocabulary = 0;             // distinct words, numbered by first appearance
  std::vector<int64_t> line_ends;     // words before the end of each line
  std::vector<int64_t> chapter_ends;  // words before the end of each chapter or paragraph
  std::vector<int64_t> part_ends;     // lines before the end of each book or part
};

// Reads `path`. Lines that begin with a reference ("Ge1:1 In the ...", as the program of Debian's
// bible-kjv prints them) give books and chapters. In any other text empty lines end chapters
// (paragraphs), and a line that begins with BOOK, PART, CHAPTER or ACT begins a part; without such
// lines sixteen parts are cut at paragraphs. Where there are next to no words (numbers, any bytes)
// each byte is one. Throws std::runtime_error when there is nothing to read.
Text read_text(const std::string& path);

}  // namespace aclgrad::demo

#endif  // ACLGRAD_DEMO_TEXT_H_
