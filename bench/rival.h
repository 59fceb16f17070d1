// SPDX-License-Identifier: Apache-2.0
// Another implementation, in a process of its own, that answers to lines on its standard input:
//
//   threads 2                                    ok
//   make layer_norm_backward/f16/4096x1024 1     ok [how it computes it], or: no <why not>
//   run 3                                        seconds of each of 3 calls, on average
//
// Whatever it prints to standard error is shown. It ends at the end of its input. One that ends
// before, or answers otherwise, is left out from then on.
#ifndef ACLGRAD_BENCH_RIVAL_H_
#define ACLGRAD_BENCH_RIVAL_H_

#include <sys/types.h>

#include <cstdio>
#include <string>

namespace aclgrad::bench {

class Rival {
 public:
  // `command` is for the shell. Throws std::runtime_error when it cannot be started or does not
  // answer.
  Rival(std::string name, const std::string& command, int threads);
  Rival(const Rival&) = delete;
  Rival& operator=(const Rival&) = delete;
  ~Rival();

  const std::string& name() const { return name_; }
  // Sets up the named problem in `copies` copies, in place of the one before. False: it has no such
  // problem, or was given up; remark() says why.
  bool make(const std::string& problem, size_t copies);
  // What the rival said about the problem: how it computes it, or why it does not.
  const std::string& remark() const { return remark_; }

  // make() and run() throw std::runtime_error when the rival ends or does not answer.
  double run(int repeats);

  // It is asked nothing any more.
  void give_up(const std::string& why);

 private:
  // Sends a line and returns the answer. Throws when the rival has ended.
  std::string ask(const std::string& line);

  std::string name_;
  std::string remark_;
  bool given_up_ = false;
  pid_t process_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_RIVAL_H_
