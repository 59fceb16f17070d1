// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <stdexcept>
#include <unordered_map>

namespace aclgrad::demo {
namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// "Ge1:1 " at the start of a line; `length` is 0 when there is none.
struct Reference {
  std::string book, chapter;
  size_t length = 0;
};

Reference reference_of(const std::string& line) {
  Reference out;
  size_t at = 0;
  if (at < line.size() && is_digit(line[at])) ++at;  // "1Sa"
  while (at < line.size() && is_letter(line[at])) ++at;
  const size_t book_end = at;
  while (at < line.size() && is_digit(line[at])) ++at;
  const size_t chapter_end = at;
  if (book_end == 0 || chapter_end == book_end || at >= line.size() || line[at] != ':') return out;
  ++at;
  const size_t verse = at;
  while (at < line.size() && is_digit(line[at])) ++at;
  if (at == verse || at >= line.size() || line[at] != ' ') return out;
  out.book = line.substr(0, book_end);
  out.chapter = line.substr(0, chapter_end);
  out.length = at + 1;
  return out;
}

bool begins_part(const std::string& line) {
  std::string word;
  for (const char c : line) {
    if (!is_letter(c)) break;
    word += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return word == "BOOK" || word == "PART" || word == "CHAPTER" || word == "ACT";
}

enum class Unit { words, bytes };

// Collects words and boundaries line by line.
class Reader {
 public:
  explicit Reader(Unit unit) : unit_(unit) {}

  void line(const std::string& line) {
    const Reference reference = reference_of(line);
    if (reference.length != 0) {
      if (reference.book != book_) end_part();
      if (reference.chapter != chapter_) end_chapter();
      book_ = reference.book;
      chapter_ = reference.chapter;
    } else if (begins_part(line)) {
      end_chapter();
      end_part();
    }
    const size_t before = text_.words.size();
    if (unit_ == Unit::bytes) {
      add_bytes(line);
    } else {
      add_words(line, reference.length);
    }
    if (text_.words.size() == before) return end_chapter();
    text_.line_ends.push_back(words());
  }

  Text finish() {
    end_chapter();
    end_part();
    if (text_.part_ends.size() < 2) cut_parts();
    text_.vocabulary = static_cast<int64_t>(numbers_.size());
    return std::move(text_);
  }

 private:
  int64_t words() const { return static_cast<int64_t>(text_.words.size()); }
  int64_t lines() const { return static_cast<int64_t>(text_.line_ends.size()); }

  void add_word(const std::string& word) {
    const auto number = static_cast<int64_t>(numbers_.size());
    text_.words.push_back(numbers_.emplace(word, number).first->second);
  }
  // The end of a line is a byte of it.
  void add_bytes(const std::string& line) {
    for (const char c : line) add_word(std::string(1, c));
    add_word("\n");
  }
  void add_words(const std::string& line, size_t at) {
    std::string word;
    for (; at <= line.size(); ++at) {
      const char c = at < line.size() ? line[at] : ' ';
      if (is_letter(c) || (static_cast<unsigned char>(c) & 0x80u) != 0) {
        word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (!word.empty()) {
        add_word(word);
        word.clear();
      }
    }
  }
  static void end(std::vector<int64_t>& ends, int64_t now) {
    if (now > (ends.empty() ? 0 : ends.back())) ends.push_back(now);
  }
  void end_chapter() { end(text_.chapter_ends, words()); }
  void end_part() { end(text_.part_ends, lines()); }

  // Sixteen parts, each cut at the first line whose end is a chapter's end.
  void cut_parts() {
    text_.part_ends.clear();
    for (int64_t part = 1; part < 16; ++part) {
      int64_t line = lines() * part / 16;
      while (line > 0 && line < lines() &&
             !std::binary_search(text_.chapter_ends.begin(), text_.chapter_ends.end(),
                                 text_.line_ends[static_cast<size_t>(line - 1)])) {
        ++line;
      }
      end(text_.part_ends, line);
    }
    end(text_.part_ends, lines());
  }

  Unit unit_;
  Text text_;
  std::unordered_map<std::string, int64_t> numbers_;
  std::string book_, chapter_;
};

constexpr size_t kLeastWords = 64;

Text read_as(const std::string& path, Unit unit) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  Reader reader(unit);
  for (std::string line; std::getline(file, line);) reader.line(line);
  Text text = reader.finish();
  text.name = path;
  return text;
}

}  // namespace

Text read_text(const std::string& path) {
  Text words = read_as(path, Unit::words);
  if (words.words.size() >= kLeastWords) return words;
  Text bytes = read_as(path, Unit::bytes);
  bytes.of_bytes = true;
  if (bytes.words.size() >= kLeastWords) return bytes;
  throw std::runtime_error(path + " has " + std::to_string(words.words.size()) + " words and " +
                           std::to_string(bytes.words.size()) + " bytes; the demo needs at least " +
                           std::to_string(kLeastWords));
}

}  // namespace aclgrad::demo
