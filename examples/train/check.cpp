// SPDX-License-Identifier: Apache-2.0
#include "check.h"

#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>

extern char** environ;

namespace aclgrad::train {
namespace {

constexpr uint64_t kSteps = 20;

// A folder that is gone at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
    if (error) throw std::runtime_error("TMPDIR names no folder: " + error.message());
    path_ = (parent / "train-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) {
      throw std::runtime_error("cannot make the folder " + path_ + ": " + std::strerror(errno));
    }
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void write(const std::string& path, const void* bytes, size_t count) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

void write_weights(const std::string& path, const Array<float>& array) {
  write(path, array.data(), array.size() * sizeof(float));
}

// Sizes and parameters, a line each.
void write_model(const std::string& path, Trainer& trainer, aclDataType dtype) {
  const ModelSize& s = trainer.size();
  const AdamW optimizer;
  std::ofstream file(path);
  file << std::setprecision(17);
  file << "size width " << s.width << "\nsize heads " << s.heads << "\nsize blocks " << s.blocks
       << "\nsize context " << s.context << "\nsize batch " << s.batch << "\nsize experts "
       << s.experts << "\nsize hidden " << s.hidden << "\nsize window " << s.window
       << "\nsize stride " << s.stride << "\nsize bf16 " << (dtype == ACL_BF16 ? 1 : 0)
       << "\nsize steps " << kSteps << '\n';
  file << "adamw first_decay " << optimizer.first_decay << "\nadamw second_decay "
       << optimizer.second_decay << "\nadamw epsilon " << optimizer.epsilon
       << "\nadamw weight_decay " << optimizer.weight_decay << '\n';
  for (uint64_t step = 1; step <= kSteps; ++step) file << "rate " << optimizer.rate(step) << '\n';
  for (const Parameter& p : trainer.parameters().list()) {
    file << "parameter " << p.name << ' ' << p.offset << ' ' << (p.decays ? 1 : 0);
    for (const size_t dim : p.dims) file << ' ' << dim;
    file << '\n';
  }
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

void write_ends(const std::string& path, const std::vector<int64_t>& ends) {
  std::ofstream file(path, std::ios::app);
  for (const int64_t end : ends) file << end << ' ';
  file << '\n';
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

// Runs the steps; what each began with and ended with goes to the folder.
void write_steps(const TemporaryFolder& folder, Trainer& trainer) {
  write_weights(folder.file("weights.bin"), trainer.parameters().master());
  std::ofstream losses(folder.file("losses.txt"));
  losses << std::setprecision(17);
  for (uint64_t step = 0; step < kSteps; ++step) {
    const Batch batch = trainer.batch(step);
    write(folder.file("bytes.bin"), batch.bytes.data(), batch.bytes.size());
    write(folder.file("targets.bin"), batch.targets.data(), batch.targets.size());
    write_ends(folder.file("ends.txt"), batch.sequence_ends);
    losses << trainer.step(batch, step + 1) << '\n';
    const std::vector<uint32_t> choices = trainer.model().choices();
    write(folder.file("choices.bin"), choices.data(), choices.size() * sizeof(choices[0]));
    const std::vector<uint16_t> rounded = trainer.model().rounded();
    write(folder.file("rounded.bin"), rounded.data(), rounded.size() * sizeof(rounded[0]));
    if (step > 0) continue;
    write_weights(folder.file("gradients.bin"), trainer.parameters().gradients());
  }
  losses.close();
  if (!losses) throw std::runtime_error("cannot write " + folder.file("losses.txt"));
}

int run_script(const std::string& folder) {
  std::string script = TRAIN_FOLDER "/check/check.sh", argument = folder;
  char* arguments[] = {script.data(), argument.data(), nullptr};
  pid_t child = 0;
  const int error = posix_spawn(&child, script.c_str(), nullptr, nullptr, arguments, environ);
  if (error != 0) throw std::runtime_error("cannot run " + script + ": " + std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

const char* check_text() { return TRAIN_FOLDER "/README.md"; }

bool run_check(Trainer& trainer, aclDataType dtype) {
  const TemporaryFolder folder;
  write_model(folder.file("model.txt"), trainer, dtype);
  write_steps(folder, trainer);
  std::fflush(stdout);
  return run_script(folder.path()) == 0;
}

}  // namespace aclgrad::train
