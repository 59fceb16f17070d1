// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <unistd.h>

#include <cstdio>
#include <stdexcept>

namespace aclgrad::bench {
namespace {

double gigabytes(const Problem& problem, double seconds) {
  return static_cast<double>(problem.bytes) / seconds / 1e9;
}
// As a cell of comma-separated values.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out.append(c == '"' ? 2 : 1, c);
  return out + '"';
}

const char* name_of(Roof roof) { return roof == Roof::kRead ? "read" : "copy"; }

}  // namespace

Report::Report(const std::vector<std::unique_ptr<Rival>>& rivals, const std::string& view,
               const std::string& csv, bool cached)
    : rivals_(rivals), view_(view), machine_(this_machine()) {
  std::printf("%s, %s, %d %s, peak %.0f GFLOP/s; tensors: %s; medians\n", machine_.name.c_str(),
              machine_.target.c_str(), machine_.units,
              machine_.target == "cuda" ? "multiprocessors" : "threads", machine_.peak_flops / 1e9,
              view.c_str());
  std::printf("%-52s %10s %5s %8s %8s %7s %6s %6s %6s %10s", "problem", "us", "+-", "MB", "peak MB",
              "GB/s", "copy", "read", "2r+w", "share of");
  for (const auto& rival : rivals_) std::printf(" %16s", rival->name().c_str());
  std::printf("\n");
  if (csv.empty()) return;
  csv_.open(csv);
  if (!csv_) throw std::runtime_error(csv + ": cannot be written");
  csv_ << "# " << machine_.name << "; peak " << machine_.peak_flops / 1e9 << " GFLOP/s"
       << (cached ? "; small problems in the caches\n" : "\n")
       << "problem,view,target,threads,us,us_20,us_80,bytes,flops,gb_per_s,roof,share_of_roof,"
          "copy_gb_per_s,read_gb_per_s,add_gb_per_s,rounds,disturbed_rounds,workspace_bytes,peak_"
          "bytes";
  for (const auto& rival : rivals_) {
    for (const char* column : {"_us", "_us_20", "_us_80", "_ratio", "_way"}) {
      csv_ << ',' << rival->name() << column;
    }
  }
  csv_ << '\n';
}

void Report::add(const std::string& name, const Problem& problem, const Timing& timing) {
  const double spread = (timing.call.high - timing.call.low) / 2 / timing.call.median;
  std::printf("%-52s %10.1f %4.0f%% %8.1f %8.1f %7.2f %6.1f %6.1f %6.1f %4.0f%% %s", name.c_str(),
              timing.call.median * 1e6, 100 * spread, static_cast<double>(problem.bytes) / 1e6,
              static_cast<double>(timing.peak_bytes) / 1e6, gigabytes(problem, timing.call.median),
              gigabytes(problem, timing.copy_seconds), gigabytes(problem, timing.read_seconds),
              gigabytes(problem, timing.add_seconds), 100 * timing.share, name_of(problem.roof));
  for (const auto& rival : timing.rivals) {
    if (rival.call) {
      std::printf(" %9.1f %5.2fx", rival.call->median * 1e6, rival.ratio);
    } else {
      std::printf(" %16s", "-");
    }
  }
  if (timing.disturbed_rounds > 0) {
    std::printf("  (%d rounds beside other work)", timing.disturbed_rounds);
  }
  std::printf("\n");
  std::fflush(stdout);
  if (csv_.is_open()) add_to_csv(name, problem, timing);
}

void Report::add_to_csv(const std::string& name, const Problem& problem, const Timing& timing) {
  csv_ << name << ',' << view_ << ',' << machine_.target << ',' << machine_.units << ','
       << timing.call.median * 1e6 << ',' << timing.call.low * 1e6 << ',' << timing.call.high * 1e6
       << ',' << problem.bytes << ',' << problem.flops << ','
       << gigabytes(problem, timing.call.median) << ',' << name_of(problem.roof) << ','
       << timing.share << ',' << gigabytes(problem, timing.copy_seconds) << ','
       << gigabytes(problem, timing.read_seconds) << ',' << gigabytes(problem, timing.add_seconds)
       << ',' << timing.rounds << ',' << timing.disturbed_rounds << ',' << timing.workspace_bytes
       << ',' << timing.peak_bytes;
  for (const auto& rival : timing.rivals) {
    const auto& call = rival.call;
    if (call) {
      csv_ << ',' << call->median * 1e6 << ',' << call->low * 1e6 << ',' << call->high * 1e6 << ','
           << rival.ratio;
    } else {
      csv_ << ",,,,";
    }
    csv_ << ',' << quoted(rival.way);
  }
  csv_ << std::endl;  // what was measured stays if the run is stopped
}

}  // namespace aclgrad::bench
