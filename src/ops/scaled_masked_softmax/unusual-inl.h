// SPDX-License-Identifier: Apache-2.0
// Rows whose exponents take FP64: few, so slow ones.

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_UNUSUAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_UNUSUAL_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_UNUSUAL_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_UNUSUAL_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/half.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/scaled_masked_softmax/exponents.h"
#include "ops/scaled_masked_softmax/rows.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Which element stands in lane `lane` of vector i of the buffer; cols if none does.
template <class T>
size_t element_at(size_t cols, size_t i, size_t lane) {
  const bool in_pairs = cols >= kPair;
  const size_t whole = in_pairs ? cols / kPair * kPair : 0;
  const size_t begin = i / 2 * kPair;
  const bool is_last = in_pairs && begin == whole;
  const bool interleaved = in_pairs && std::is_same_v<T, bfloat16_t>;
  const size_t inside = interleaved ? 2 * lane + i % 2 : i % 2 * kLanes + lane;
  const size_t c = is_last ? cols - kPair + inside : begin + inside;
  return c < cols && (!is_last || c >= whole) ? c : cols;
}

// Both visits to a row whose numbers FP32 cannot tell apart, or that has NaNs, or nothing to go by.
// Rows of less than a pair stand in order.
template <class T>
double unusual_row(const Job& job, const Row<T>& row, float* values) {
  if (std::memchr(row.mask, 0, job.cols) == nullptr) {
    std::fill_n(values, job.padded, kExpGain);
    return static_cast<double>(job.cols) * static_cast<double>(kExpGain);
  }
  const Exponents exponents(row.x, row.mask, job.cols, job.problem.scale);
  if (exponents.has_nan()) return std::numeric_limits<double>::quiet_NaN();
  const double masked = exponents.of_masked();
  alignas(64) double wide[kLanes];
  double sums[1];
  row_sums<1>(job.padded, sums, [&](size_t i, size_t, F32x16(&acc)[1]) HWY_ATTR {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const size_t c = element_at<T>(job.cols, i, lane);
      if (c == job.cols) {
        wide[lane] = -std::numeric_limits<double>::infinity();
      } else if (row.mask[c] != 0) {
        wide[lane] = masked;
      } else {
        wide[lane] = exponents.of(static_cast<double>(to_float(row.x[c])));
      }
    }
    const F32x16 value = exp2_below(wide);
    store_raw(value, values + i * kLanes);
    acc[0] = add(acc[0], value);
  });
  return sums[0];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
