// SPDX-License-Identifier: Apache-2.0
// A file that is written under a temporary name and renamed when all of it is on the disk: a
// failure leaves what was there before.
#ifndef ACLGRAD_TRAIN_OUTPUT_FILE_H_
#define ACLGRAD_TRAIN_OUTPUT_FILE_H_

#include <cstddef>
#include <string>

namespace aclgrad::train {

// Gone again unless it was kept. Throws std::runtime_error that names the file and the reason.
class OutputFile {
 public:
  // Where `path` is a symbolic link, the file that it names is meant.
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(const void* bytes, size_t count);
  // Puts the file in its place.
  void keep();

 private:
  [[noreturn]] void give_up(const std::string& why);
  [[noreturn]] void fail() const;
  std::string target_, path_;
  int file_ = -1;
  bool kept_ = false;
};

// Throws where a file at `path` could not even be begun.
void expect_writable(const std::string& path);

// Whether writing `output` would touch the file `other`, which need not be there yet.
bool would_overwrite(const std::string& output, const std::string& other);
// The same, of the temporary file alone.
bool would_overwrite_on_the_way(const std::string& output, const std::string& other);

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_OUTPUT_FILE_H_
