// SPDX-License-Identifier: Apache-2.0
// A problem of GroupedBiasAddGrad with random data, its two phases and what it must give.
#pragma once

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "ops/grouped_bias_add_grad/reference.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/same_bits.h"
#include "support/tensor.h"

namespace aclgrad::test {

using grouped_bias_add_grad::equal_groups;
using grouped_bias_add_grad::named_groups;
using grouped_bias_add_grad::RowRange;

using Numbers = std::vector<int64_t>;

inline constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
inline constexpr aclError kDataError = 507015;

inline Numbers running_sums(Numbers sizes) {
  std::partial_sum(sizes.begin(), sizes.end(), sizes.begin());
  return sizes;
}

inline int64_t sum(const Numbers& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

// What a problem may choose; the defaults are the plain case.
struct Options {
  aclDataType dtype = ACL_FLOAT;
  aclDataType index = ACL_INT64;
  bool second = false;  // V2
  bool sizes = false;   // groupIdxType 1
  Arrangement in = Arrangement::kContiguous;
  Arrangement index_in = Arrangement::kContiguous;
  Arrangement out = Arrangement::kContiguous;
};

// The tensors of one problem with random data, and its two phases.
struct Problem {
  // With groupIdx; `numbers` are ends or sizes as the options have it, right or wrong.
  Problem(int64_t rows, int64_t columns, const Numbers& numbers, const Options& chosen,
          uint64_t seed = 1)
      : options(chosen),
        cols(columns),
        groups(named_groups(numbers, chosen.sizes, rows)),
        dy({rows, columns}, chosen.dtype, chosen.in),
        index(std::in_place, Dims{std::ssize(numbers)}, chosen.index, chosen.index_in),
        out({std::ssize(numbers), columns}, chosen.dtype, chosen.out) {
    index->fill_bits(bytes_of(numbers));
    dy.fill_normal(seed, 0.25);
  }
  // Without.
  Problem(const Dims& dims, const Options& chosen, uint64_t seed = 1)
      : options(chosen),
        cols(dims[2]),
        groups(equal_groups(dims[0], dims[1])),
        dy(dims, chosen.dtype, chosen.in),
        out({dims[0], dims[2]}, chosen.dtype, chosen.out) {
    dy.fill_normal(seed, 0.25);
  }

  std::vector<uint8_t> bytes_of(const Numbers& numbers) const {
    const size_t size = dtype_size(options.index);
    std::vector<uint8_t> bytes(numbers.size() * size);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (size == sizeof(int64_t)) {
        store_as(&bytes[i * size], numbers[i]);
      } else {
        store_as(&bytes[i * size], static_cast<int32_t>(numbers[i]));
      }
    }
    return bytes;
  }
  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) const {
    const aclTensor* at = index ? index->handle() : nullptr;
    if (!options.second) {
      return aclnnGroupedBiasAddGradGetWorkspaceSize(dy.handle(), at, out.handle(), size, executor);
    }
    return aclnnGroupedBiasAddGradV2GetWorkspaceSize(dy.handle(), at, options.sizes ? 1 : 0,
                                                     out.handle(), size, executor);
  }
  Outcome run_it() const {
    return run([&](uint64_t* size, aclOpExecutor** executor) { return plan(size, executor); },
               options.second ? aclnnGroupedBiasAddGradV2 : aclnnGroupedBiasAddGrad);
  }
  void expect_right() const {
    const auto exact =
        grouped_bias_add_grad::reference(static_cast<size_t>(cols), dy.values(), groups);
    double terms = 0;
    for (const RowRange& group : groups) {
      terms = std::max(terms, static_cast<double>(group.end - group.first));
    }
    expect_close("out", out, exact.dbias, exact.dbias_magnitude, terms);
  }
  void run_and_check() const {
    const Outcome outcome = run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    expect_right();
  }
  // Right here; the same bits on every target and for every thread count, also where the sums show
  // the order of the additions.
  void run_everywhere() {
    run_and_check();
    expect_same_bits_everywhere([&] { return run_it(); }, {&out});
    std::vector<size_t> group_of_row;
    for (size_t g = 0; g < groups.size(); ++g) {
      group_of_row.resize(static_cast<size_t>(groups[g].end), g);
    }
    const auto width = static_cast<size_t>(cols);
    dy.fill_cancelling(7, [&](size_t i) { return group_of_row[i / width] * width + i % width; });
    ASSERT_TRUE(run_it().ok());
    expect_same_bits_everywhere([&] { return run_it(); }, {&out});
  }

  Options options;
  int64_t cols;
  std::vector<RowRange> groups;
  Tensor dy;
  std::optional<Tensor> index;
  Tensor out;
};

inline Options in_dtype(aclDataType dtype) {
  Options options;
  options.dtype = dtype;
  return options;
}

// Every row of out holds one number; gives those numbers.
inline std::vector<double> row_values(const Tensor& out) {
  const std::vector<double> values = out.values();
  const auto cols = static_cast<size_t>(out.dims()[1]);
  std::vector<double> rows;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % cols == 0) rows.push_back(values[i]);
    EXPECT_EQ(values[i], rows.back());
  }
  return rows;
}

}  // namespace aclgrad::test
