// SPDX-License-Identifier: Apache-2.0
// A bar on stderr: drawn over itself on a terminal, a line now and then elsewhere.
#ifndef ACLGRAD_TRAIN_PROGRESS_H_
#define ACLGRAD_TRAIN_PROGRESS_H_

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace aclgrad::train {

class ProgressBar {
 public:
  ProgressBar(uint64_t first, uint64_t last, size_t tokens_of_step)
      : first_(first), last_(last), tokens_(tokens_of_step) {}

  // After step number `step`.
  void show(uint64_t step, double loss) {
    const double seconds = since(begin_);
    const bool end = step == last_;
    const double pause = terminal_ ? kTerminalPause : kLogPause;
    if (!end && step != first_ + 1 && since(shown_) < pause) return;
    shown_ = std::chrono::steady_clock::now();
    const auto done = static_cast<double>(step - first_);
    const double rate = done * static_cast<double>(tokens_) / seconds;
    const double left = seconds / done * static_cast<double>(last_ - step);
    constexpr size_t kWidth = 30;
    std::string bar(kWidth * static_cast<size_t>(step) / static_cast<size_t>(last_), '#');
    bar.resize(kWidth, '.');
    std::fprintf(stderr, "%s[%s] step %llu/%llu  loss %.3f  %.0f tokens/s  %.0f s left%s",
                 terminal_ ? "\r" : "", bar.c_str(), static_cast<unsigned long long>(step),
                 static_cast<unsigned long long>(last_), loss, rate, left,
                 terminal_ && !end ? "   " : "   \n");
    std::fflush(stderr);
  }
  double seconds() const { return since(begin_); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr double kTerminalPause = 0.2, kLogPause = 5;  // seconds
  static double since(Time begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  uint64_t first_, last_;
  size_t tokens_;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  Time begin_ = std::chrono::steady_clock::now(), shown_ = begin_;
};

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_PROGRESS_H_
