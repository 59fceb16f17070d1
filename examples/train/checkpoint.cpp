// SPDX-License-Identifier: Apache-2.0
// The file: a magic word, the header, master weights and both moments, a hash of all before it.
#include "checkpoint.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "output_file.h"

namespace aclgrad::train {
namespace {

constexpr char kMagic[8] = {'a', 'c', 'l', 'g', 'r', 'a', 'd', 'C'};

struct Header {
  char magic[8];
  uint64_t width, heads, blocks, context, batch, experts, hidden, window, stride;
  uint64_t dtype;
  uint64_t weights;  // floats of each of the three arrays
  uint64_t seed, step, text;
};

Header header_of(const ModelSize& s, aclDataType dtype, const Progress& progress, size_t weights) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.width = s.width;
  header.heads = s.heads;
  header.blocks = s.blocks;
  header.context = s.context;
  header.batch = s.batch;
  header.experts = s.experts;
  header.hidden = s.hidden;
  header.window = s.window;
  header.stride = s.stride;
  header.dtype = static_cast<uint64_t>(dtype);
  header.weights = weights;
  header.seed = progress.seed;
  header.step = progress.step;
  header.text = progress.text;
  return header;
}

ModelSize size_of(const Header& h) {
  ModelSize s;
  s.width = h.width;
  s.heads = h.heads;
  s.blocks = h.blocks;
  s.context = h.context;
  s.batch = h.batch;
  s.experts = h.experts;
  s.hidden = h.hidden;
  s.window = h.window;
  s.stride = h.stride;
  return s;
}

std::string reason() { return std::strerror(errno); }

std::vector<char> read_all(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error("cannot read the checkpoint " + path + ": " + reason());
  const auto size = static_cast<std::streamoff>(file.tellg());
  constexpr std::streamoff kMost = std::streamoff{1} << 32;  // also what a folder answers
  if (size < 0 || size > kMost) throw std::runtime_error(path + " is no checkpoint");
  std::vector<char> bytes(static_cast<size_t>(size));
  file.seekg(0);
  if (!bytes.empty() && !file.read(bytes.data(), size)) {
    throw std::runtime_error("cannot read the checkpoint " + path + ": " + reason());
  }
  return bytes;
}

}  // namespace

void save_checkpoint(const std::string& path, const ModelSize& size, aclDataType dtype,
                     const Progress& progress, Parameters& parameters) {
  const Header header = header_of(size, dtype, progress, parameters.total());
  OutputFile file(path);
  uint64_t hash = hash_bytes(nullptr, 0);
  const auto write = [&](const void* bytes, size_t count) {
    hash = hash_bytes(bytes, count, hash);
    file.write(bytes, count);
  };
  write(&header, sizeof(header));
  for (const Array<float>* array :
       {&parameters.master(), &parameters.first_moments(), &parameters.second_moments()}) {
    write(array->data(), array->size() * sizeof(float));
  }
  file.write(&hash, sizeof(hash));
  file.keep();
}

Progress load_checkpoint(const std::string& path, const ModelSize& size, aclDataType dtype,
                         Parameters& parameters) {
  const std::vector<char> bytes = read_all(path);
  Header header = {};
  if (bytes.size() < sizeof(kMagic) || std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    throw std::runtime_error(path + " is no checkpoint of this program");
  }
  if (bytes.size() < sizeof(header)) throw std::runtime_error(path + " is cut off");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (size_of(header) != size || header.weights != parameters.total()) {
    throw std::runtime_error("the checkpoint " + path + " belongs to another model (" +
                             describe(size_of(header)) + "); this one has " + describe(size));
  }
  const size_t array = parameters.total() * sizeof(float);
  const size_t whole = sizeof(header) + 3 * array + sizeof(uint64_t);
  if (bytes.size() != whole) {
    throw std::runtime_error("the checkpoint " + path + " is " +
                             (bytes.size() < whole ? "cut off" : "too long") + ": it has " +
                             std::to_string(bytes.size()) + " bytes of " + std::to_string(whole));
  }
  uint64_t hash = 0;
  std::memcpy(&hash, &bytes[whole - sizeof(hash)], sizeof(hash));
  if (hash != hash_bytes(bytes.data(), whole - sizeof(hash))) {
    throw std::runtime_error("the checkpoint " + path +
                             " is damaged: its hash is not that of its "
                             "contents");
  }
  if (header.dtype != static_cast<uint64_t>(dtype)) {
    throw std::runtime_error("the checkpoint " + path + " was trained with another --dtype");
  }
  const char* at = bytes.data() + sizeof(header);
  for (Array<float>* to :
       {&parameters.master(), &parameters.first_moments(), &parameters.second_moments()}) {
    std::memcpy(to->data(), at, array);
    at += array;
  }
  return {header.seed, header.step, header.text};
}

}  // namespace aclgrad::train
