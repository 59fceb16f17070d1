// SPDX-License-Identifier: Apache-2.0
// What was measured, as a table on the terminal and as comma-separated values.
#ifndef ACLGRAD_BENCH_REPORT_H_
#define ACLGRAD_BENCH_REPORT_H_

#include <fstream>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/roofs.h"

namespace aclgrad::bench {

class Report {
 public:
  // `csv`: a file to write, or empty; its first line says so when small problems were `cached`.
  // Throws std::runtime_error when it cannot be written.
  Report(const std::vector<std::unique_ptr<Rival>>& rivals, const std::string& view,
         const std::string& csv, bool cached);

  void add(const std::string& name, const Problem& problem, const Timing& timing);

 private:
  void add_to_csv(const std::string& name, const Problem& problem, const Timing& timing);

  const std::vector<std::unique_ptr<Rival>>& rivals_;
  std::string view_;
  Machine machine_;
  std::ofstream csv_;
};

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_REPORT_H_
