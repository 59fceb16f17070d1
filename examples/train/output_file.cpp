// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace aclgrad::train {
namespace {

namespace fs = std::filesystem;

std::string reason() { return std::strerror(errno); }

// What `path` names once its links are followed. (canonical() refuses a link to a file that is yet
// to be made.)
fs::path target_of(fs::path path) {
  constexpr int kMostLinks = 40;  // the kernel's own limit
  std::error_code ignored;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, ignored); ++i) {
    const fs::path next = fs::read_symlink(path, ignored);
    if (ignored) break;
    path = path.parent_path() / next;
  }
  return path;
}

fs::path partial_of(const fs::path& target) { return target.string() + ".partial"; }

// Whether the open file is the one that `path` names, and not one that was renamed meanwhile.
bool is_at(int file, const std::string& path) {
  struct stat open_one, named;
  return fstat(file, &open_one) == 0 && stat(path.c_str(), &named) == 0 &&
         open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error) && !error) return true;
  const fs::path first = fs::weakly_canonical(fs::absolute(target_of(a)), error);
  if (error) return false;
  const fs::path second = fs::weakly_canonical(fs::absolute(target_of(b)), error);
  return !error && first == second;
}

}  // namespace

OutputFile::OutputFile(const std::string& path)
    : target_(target_of(path)), path_(partial_of(target_)) {
  // A rename would put a file in the place of a folder or a device.
  std::error_code error;
  const fs::file_status status = fs::status(target_, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw std::runtime_error("cannot write " + path + ": it is there and no ordinary file");
  }
  // Locked, so that another run which saves to the same name neither writes into it nor removes it.
  do {
    if (file_ >= 0) close(file_);
    file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) fail();
    if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
      give_up(errno == EWOULDBLOCK ? "another run is writing it" : reason());
    }
  } while (!is_at(file_, path_));
  if (ftruncate(file_, 0) != 0) give_up(reason());
}

OutputFile::~OutputFile() {
  if (!kept_) unlink(path_.c_str());
  if (file_ >= 0) close(file_);
}

// For the constructor, which no destructor follows.
void OutputFile::give_up(const std::string& why) {
  close(file_);
  throw std::runtime_error("cannot write " + path_ + ": " + why);
}

void OutputFile::fail() const {
  throw std::runtime_error("cannot write " + path_ + ": " + reason());
}

void OutputFile::write(const void* bytes, size_t count) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(file_, at, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    at += written;
    count -= static_cast<size_t>(written);
  }
}

void OutputFile::keep() {
  if (fsync(file_) != 0) fail();
  // Closed after it has its name: the lock ends with that.
  if (rename(path_.c_str(), target_.c_str()) != 0) {
    throw std::runtime_error("cannot rename " + path_ + " to " + target_ + ": " + reason());
  }
  kept_ = true;
  const int file = file_;
  file_ = -1;
  if (close(file) != 0) throw std::runtime_error("cannot write " + target_ + ": " + reason());
}

void expect_writable(const std::string& path) { const OutputFile begun(path); }

bool would_overwrite(const std::string& output, const std::string& other) {
  return same_file(output, other) || would_overwrite_on_the_way(output, other);
}

bool would_overwrite_on_the_way(const std::string& output, const std::string& other) {
  return same_file(partial_of(target_of(output)), other);
}

}  // namespace aclgrad::train
