// SPDX-License-Identifier: Apache-2.0
// Shapes with indices into a table: "65536x50304x768", indices x table rows x width, the rows drawn
// as words of a text are (row v about 1 / (v + 1) times as often as row 0); "...-uniform", all
// alike; "...-equal", always row 0; and, for gradients, "...-freq", scaled by how often a row is
// used.
#ifndef ACLGRAD_BENCH_LOOKUPS_H_
#define ACLGRAD_BENCH_LOOKUPS_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/bench.h"

namespace aclgrad::bench {

struct LookupShape {
  int64_t count, table_rows, width;
  bool uniform, equal, by_frequency;
};

// Throws std::invalid_argument when it is no such shape, or one without a table or indices.
inline LookupShape parse_lookups(const std::string& name) {
  std::string shape = name;
  const auto take = [&](const std::string& suffix) {
    if (!shape.ends_with(suffix)) return false;
    shape.erase(shape.size() - suffix.size());
    return true;
  };
  const bool by_frequency = take("-freq");
  const bool uniform = take("-uniform");
  const bool equal = !uniform && take("-equal");
  const Dims dims = parse_dims(shape, 3);
  if (dims[0] < 1 || dims[1] < 1 || dims[2] < 1) {
    throw std::invalid_argument("shape '" + name +
                                "': expected a table and indices that are not empty");
  }
  return {dims[0], dims[1], dims[2], uniform, equal, by_frequency};
}

inline std::vector<double> indices_of(const LookupShape& shape) {
  std::vector<double> indices(static_cast<size_t>(shape.count), 0.0);
  if (shape.equal) return indices;
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> between(0.0, 1.0);
  const auto rows = static_cast<double>(shape.table_rows);
  for (double& index : indices) {
    const double drawn = between(random);
    index = std::floor(shape.uniform ? rows * drawn : std::pow(rows + 1.0, drawn) - 1.0);
  }
  return indices;
}

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_LOOKUPS_H_
