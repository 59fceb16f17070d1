// SPDX-License-Identifier: Apache-2.0
// The file: a magic word, the header, master weights and both moments, a hash of all before it.
#include "checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

namespace aclgrad::train {
namespace {

constexpr char kMagic[8] = {'a', 'c', 'l', 'g', 'r', 'a', 'd', 'T'};

struct Header {
  char magic[8];
  uint64_t width, heads, blocks, context, batch, experts, hidden, window, stride;
  uint64_t dtype;
  uint64_t weights;  // floats of each of the three arrays
  uint64_t seed, step;
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

// A file that is gone again unless it was kept.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path) : path_(path + ".partial") {
    file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file_ < 0) throw std::runtime_error("cannot write " + path_ + ": " + reason());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (file_ >= 0) close(file_);
    if (!kept_) unlink(path_.c_str());
  }

  void write(const void* bytes, size_t count) {
    hash_ = hash_bytes(bytes, count, hash_);
    write_raw(bytes, count);
  }
  void keep_as(const std::string& path) {
    const uint64_t hash = hash_;
    write_raw(&hash, sizeof(hash));
    if (fsync(file_) != 0) fail();
    const int file = file_;
    file_ = -1;
    if (close(file) != 0) fail();
    if (rename(path_.c_str(), path.c_str()) != 0) {
      throw std::runtime_error("cannot rename " + path_ + " to " + path + ": " + reason());
    }
    kept_ = true;
  }

 private:
  [[noreturn]] void fail() const {
    throw std::runtime_error("cannot write " + path_ + ": " + reason());
  }
  void write_raw(const void* bytes, size_t count) {
    const char* at = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t written = ::write(file_, at, count);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail();
      at += written;
      count -= static_cast<size_t>(written);
    }
  }
  std::string path_;
  int file_ = -1;
  uint64_t hash_ = hash_bytes(nullptr, 0);
  bool kept_ = false;
};

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

void expect_writable(const std::string& path) {
  // A rename would put a file in the place of a folder or a device.
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path)) {
    throw std::runtime_error("cannot write " + path + ": it is there and no ordinary file");
  }
  const TemporaryFile begun(path);
}

void save_checkpoint(const std::string& path, const ModelSize& size, aclDataType dtype,
                     const Progress& progress, Parameters& parameters) {
  expect_writable(path);
  const Header header = header_of(size, dtype, progress, parameters.total());
  TemporaryFile file(path);
  file.write(&header, sizeof(header));
  for (const Array<float>* array :
       {&parameters.master(), &parameters.first_moments(), &parameters.second_moments()}) {
    file.write(array->data(), array->size() * sizeof(float));
  }
  file.keep_as(path);
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
  return {header.seed, header.step};
}

}  // namespace aclgrad::train
