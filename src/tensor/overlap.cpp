// SPDX-License-Identifier: Apache-2.0
// Both questions are one: do integers x_k with 0 <= x_k <= bound_k exist such that
//   sum of x_k * step_k == target          (all steps positive)
// Two views: the steps of both (those of the second counted backwards) and one step of 1 for the
// bytes inside the elements. One view with itself: the differences of two indices.
//
// The search takes the terms from the largest step down. What the terms behind term k can add up to
// is known: multiples of their greatest common divisor between 0 and their total. So x_k lies in a
// short interval and in one residue class, and for the usual nested strides at most one value is
// tried at each level. Terms whose steps nest without gaps are first joined to one.
#include "tensor/overlap.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/dtype.h"

namespace aclgrad {
namespace {

// Sums of two reaches may leave int64.
__extension__ using Wide = __int128;

struct Term {
  int64_t step = 0;
  Wide bound = 0;
};

// Insertion: there are at most 17.
void sort_by_step(Term* terms, size_t count) {
  for (size_t i = 1; i < count; ++i) {
    for (size_t j = i; j > 0 && terms[j].step < terms[j - 1].step; --j) {
      std::swap(terms[j], terms[j - 1]);
    }
  }
}

class Equation {
 public:
  void add(int64_t step, Wide bound) {
    if (bound == 0) return;
    terms_[count_++] = Term{step, bound};
  }
  Overlap solve(Wide target, int64_t work) {
    prepare();
    work_ = work;
    return search(0, target);
  }

 private:
  static constexpr size_t kMost = 2 * kMaxRank + 1;
  // What is known of terms k and those behind it.
  struct Rest {
    int64_t divisor = 0;  // greatest common divisor of their steps; 0 for none
    Wide total = 0;       // their largest sum
    int64_t inverse = 0;  // of step_k / divisor_k modulo divisor_{k+1} / divisor_k
  };

  void join_terms();
  void prepare();
  Overlap search(size_t level, Wide target);
  // The smallest x_k >= low that leaves a multiple of the divisor behind term k.
  Wide first_candidate(size_t level, Wide target, Wide low, int64_t modulus) const;

  std::array<Term, kMost> terms_{};
  std::array<Rest, kMost + 1> rest_{};
  size_t count_ = 0;
  int64_t work_ = 0;
};

Wide floor_div(Wide a, Wide b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
Wide ceil_div_wide(Wide a, Wide b) { return -floor_div(-a, b); }
Wide positive_mod(Wide a, Wide b) { return a - floor_div(a, b) * b; }

// Of a modulo m, for coprime a and m; 0 for m == 1.
int64_t inverse_modulo(int64_t a, int64_t m) {
  Wide old_r = positive_mod(a, m);
  Wide r = m;
  Wide old_s = 1;
  Wide s = 0;
  while (r != 0) {
    const Wide quotient = old_r / r;
    old_r = std::exchange(r, old_r - quotient * r);
    old_s = std::exchange(s, old_s - quotient * s);
  }
  return static_cast<int64_t>(positive_mod(old_s, m));
}

// {step, bound} and {m * step, other} reach every multiple of step when bound >= m - 1.
void Equation::join_terms() {
  sort_by_step(terms_.data(), count_);
  size_t kept = 0;
  for (size_t i = 0; i < count_; ++i) {
    const Term term = terms_[i];
    bool joined = false;
    for (size_t j = kept; j-- > 0 && !joined;) {
      const int64_t factor = term.step / terms_[j].step;
      if (term.step % terms_[j].step != 0 || terms_[j].bound < factor - 1) continue;
      terms_[j].bound += Wide{factor} * term.bound;
      joined = true;
    }
    if (!joined) terms_[kept++] = term;
  }
  count_ = kept;
}

void Equation::prepare() {
  join_terms();
  std::reverse(terms_.begin(), terms_.begin() + count_);
  rest_[count_] = Rest{};
  for (size_t k = count_; k-- > 0;) {
    const int64_t behind = rest_[k + 1].divisor;
    const int64_t divisor = std::gcd(terms_[k].step, behind);
    rest_[k].divisor = divisor;
    rest_[k].total = rest_[k + 1].total + terms_[k].bound * terms_[k].step;
    rest_[k].inverse = behind == 0 ? 0 : inverse_modulo(terms_[k].step / divisor, behind / divisor);
  }
}

Wide Equation::first_candidate(size_t level, Wide target, Wide low, int64_t modulus) const {
  const Rest& rest = rest_[level];
  const Wide reduced = positive_mod(target / rest.divisor, modulus);
  const Wide residue = reduced * rest.inverse % modulus;
  return low + positive_mod(residue - low, modulus);
}

Overlap Equation::search(size_t level, Wide target) {
  const Rest& rest = rest_[level];
  if (target < 0 || target > rest.total) return Overlap::kNo;
  if (target == 0) return Overlap::kYes;
  if (target % rest.divisor != 0) return Overlap::kNo;
  if (level + 1 == count_) return Overlap::kYes;
  const Term& term = terms_[level];
  const Rest& behind = rest_[level + 1];
  const Wide low = std::max<Wide>(0, ceil_div_wide(target - behind.total, term.step));
  const Wide high = std::min<Wide>(term.bound, floor_div(target, term.step));
  const int64_t modulus = behind.divisor / rest.divisor;
  for (Wide x = first_candidate(level, target, low, modulus); x <= high; x += modulus) {
    if (--work_ < 0) return Overlap::kUndecided;
    const Overlap found = search(level + 1, target - x * term.step);
    if (found != Overlap::kNo) return found;
  }
  return Overlap::kNo;
}

int64_t magnitude(int64_t value) { return value < 0 ? -value : value; }

}  // namespace

Extent extent_of(const View& view) {
  const auto size = static_cast<int64_t>(dtype_size(view.dtype));
  Extent extent{0, size};
  for (int i = 0; i < view.rank; ++i) {
    const auto index = static_cast<size_t>(i);
    if (view.dims[index] <= 1) continue;
    const int64_t step = (view.dims[index] - 1) * view.strides[index] * size;
    (step < 0 ? extent.low : extent.high) += step;
  }
  return extent;
}

Overlap views_overlap(const View& a, uintptr_t address_a, const View& b, uintptr_t address_b,
                      int64_t work) {
  const Extent extent_a = extent_of(a);
  const Extent extent_b = extent_of(b);
  const Wide low_a = Wide{address_a} + extent_a.low;
  const Wide high_a = Wide{address_a} + extent_a.high;
  const Wide low_b = Wide{address_b} + extent_b.low;
  const Wide high_b = Wide{address_b} + extent_b.high;
  if (high_a <= low_b || high_b <= low_a) return Overlap::kNo;
  // Byte of a == byte of b: low_a + sum_a + u == (high_b - 1) - sum_b - v, all terms from 0 up.
  Equation equation;
  const auto size_a = static_cast<int64_t>(dtype_size(a.dtype));
  const auto size_b = static_cast<int64_t>(dtype_size(b.dtype));
  for (const auto& [view, size] : {std::pair{&a, size_a}, std::pair{&b, size_b}}) {
    for (int i = 0; i < view->rank; ++i) {
      const auto index = static_cast<size_t>(i);
      if (view->dims[index] <= 1 || view->strides[index] == 0) continue;
      equation.add(magnitude(view->strides[index]) * size, view->dims[index] - 1);
    }
  }
  equation.add(1, size_a + size_b - 2);
  return equation.solve(high_b - 1 - low_a, work);
}

Overlap self_overlap(const View& view, int64_t work) {
  std::array<Term, kMaxRank> steps{};
  size_t count = 0;
  for (int i = 0; i < view.rank; ++i) {
    const auto index = static_cast<size_t>(i);
    if (view.dims[index] == 0) return Overlap::kNo;
    if (view.dims[index] == 1) continue;
    if (view.strides[index] == 0) return Overlap::kYes;
    steps[count++] = Term{magnitude(view.strides[index]), view.dims[index] - 1};
  }
  sort_by_step(steps.data(), count);
  // Two indices that differ last in dimension k (in order of the steps), by x >= 1 there and by
  // -bound ... bound before: x * step_k + sum of differences == 0.
  Overlap result = Overlap::kNo;
  Wide smaller = 0;  // what the dimensions before k reach
  for (size_t k = 0; k < count; ++k) {
    if (smaller >= steps[k].step) {
      Equation equation;
      equation.add(steps[k].step, steps[k].bound - 1);
      for (size_t j = 0; j < k; ++j) equation.add(steps[j].step, 2 * steps[j].bound);
      const Overlap found = equation.solve(smaller - steps[k].step, work);
      if (found == Overlap::kYes) return found;
      if (found == Overlap::kUndecided) result = found;
    }
    smaller += steps[k].bound * steps[k].step;
  }
  return result;
}

}  // namespace aclgrad
