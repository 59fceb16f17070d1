// SPDX-License-Identifier: Apache-2.0
// Sixteen short rows joined at once: their sums, or their largest elements, come out as one vector.

#if defined(ACLGRAD_KERNELS_CPU_ROW_JOINS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_ROW_JOINS_INL_H_
#undef ACLGRAD_KERNELS_CPU_ROW_JOINS_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_ROW_JOINS_INL_H_
#endif

#include <limits>

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

// How two numbers become one, and what stands where a row has no element.
struct Sum {
  static constexpr float kNothing = 0.0f;
  HWY_INLINE VecF32 operator()(VecF32 a, VecF32 b) const { return hn::Add(a, b); }
};
// Where there are NaNs it may be anything.
struct Largest {
  static constexpr float kNothing = -std::numeric_limits<float>::infinity();
  HWY_INLINE VecF32 operator()(VecF32 a, VecF32 b) const { return hn::Max(a, b); }
};

// Which of kWidth = 4, 8 or 16 lanes hold elements of rows that have `count`, at most that many.
template <size_t kWidth>
struct RowLanes {
  HWY_INLINE explicit RowLanes(size_t n) : count(n) {
    alignas(64) float inside[kLanes];
    for (size_t i = 0; i < kLanes; ++i) inside[i] = i % kWidth < count ? 1.0f : 0.0f;
    for (size_t i = 0; i < kPieces; ++i) {
      const VecF32 part = hn::Load(TagF32(), inside + i * kPartLanes);
      masks[i] = hn::Gt(part, hn::Zero(TagF32()));
    }
  }
  static constexpr size_t kPieces = kWidth > kPartLanes ? kWidth / kPartLanes : 1;
  size_t count;
  hn::Mask<TagF32> masks[kPieces];
};

// Lane k of the result joins the elements of the row at p + k * step, filled up to kWidth lanes
// with what changes nothing: lanes i and i + kWidth / 2, and so on down to i + 1. Sixteen floats
// may be read from every row.
#if HWY_TARGET == HWY_SCALAR
template <size_t kWidth, class Op>
HWY_INLINE F32x16 join_rows(const float* p, size_t step, const RowLanes<kWidth>& lanes, Op op) {
  F32x16 out;
  for (size_t k = 0; k < kLanes; ++k) {
    VecF32 v[kWidth];
    for (size_t i = 0; i < kWidth; ++i) {
      v[i] = hn::Set(TagF32(), i < lanes.count ? p[k * step + i] : Op::kNothing);
    }
    for (size_t half = kWidth / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) v[i] = op(v[i], v[i + half]);
    }
    out.part[k] = v[0];
  }
  return out;
}
#else

// `kRows` rows side by side in one register, the first one lowest: rows `step` apart.
template <size_t kRows, class D>
HWY_INLINE hn::Vec<D> rows_side_by_side(D d, const float* p, [[maybe_unused]] size_t step) {
  if constexpr (kRows == 1) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, rows_side_by_side<kRows / 2>(half, p + kRows / 2 * step, step),
                       rows_side_by_side<kRows / 2>(half, p, step));
  }
}

// Joins the halves, 128-bit blocks, pairs or lanes of two registers: what comes from `a` stands in
// the even places, what comes from `b` in the odd ones (halves: a below b).
template <class Op>
HWY_INLINE VecF32 joined_halves(VecF32 a, VecF32 b, Op op) {
  const TagF32 d;
  return op(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
}
template <class Op>
HWY_INLINE VecF32 joined_blocks(VecF32 a, VecF32 b, Op op) {
  return op(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a),
            hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)));
}
template <class Op>
HWY_INLINE VecF32 joined_pairs(VecF32 a, VecF32 b, Op op) {
  const TagF32 d;
  const hn::Repartition<double, TagF32> pairs;
  const auto a2 = hn::BitCast(pairs, a);
  const auto b2 = hn::BitCast(pairs, b);
  return op(hn::BitCast(d, hn::InterleaveLower(pairs, a2, b2)),
            hn::BitCast(d, hn::InterleaveUpper(pairs, a2, b2)));
}
template <class Op>
HWY_INLINE VecF32 joined_lanes(VecF32 a, VecF32 b, Op op) {
  return op(hn::OddEven(hn::Shuffle2301(b), a), hn::OddEven(b, hn::Shuffle2301(a)));
}

// The kPartLanes rows from p on. A register holds kSide rows from the beginning, kPartLanes / kSide
// apart, where they are so short.
template <size_t kWidth, class Op>
HWY_INLINE VecF32 join_part(const float* p, size_t step, const RowLanes<kWidth>& lanes, Op op) {
  const TagF32 d;
  constexpr size_t kSide = kPartLanes > kWidth ? kPartLanes / kWidth : 1;
  constexpr size_t kRegisters = kPartLanes / kSide;
  const VecF32 nothing = hn::Set(d, Op::kNothing);
  VecF32 v[kRegisters];
  // Rows of more than a register: its parts are joined first.
  constexpr size_t kPieces = RowLanes<kWidth>::kPieces;
  for (size_t k = 0; k < kRegisters; ++k) {
    VecF32 piece[kPieces];
    for (size_t i = 0; i < kPieces; ++i) {
      const float* at = p + k * step + i * kPartLanes;
      piece[i] = hn::IfThenElse(lanes.masks[i], rows_side_by_side<kSide>(d, at, kRegisters * step),
                                nothing);
    }
    for (size_t half = kPieces / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) piece[i] = op(piece[i], piece[i + half]);
    }
    v[k] = piece[0];
  }
  if constexpr (kRegisters == 16) {
    for (size_t k = 0; k < 8; ++k) v[k] = joined_halves(v[k], v[k + 8], op);
  }
  if constexpr (kRegisters >= 8) {
    for (size_t k = 0; k < 4; ++k) {
      if constexpr (kPartLanes == 16) {
        v[k] = joined_blocks(v[k], v[k + 4], op);
      } else {
        v[k] = joined_halves(v[k], v[k + 4], op);
      }
    }
  }
  for (size_t k = 0; k < 2; ++k) v[k] = joined_pairs(v[k], v[k + 2], op);
  return joined_lanes(v[0], v[1], op);
}

template <size_t kWidth, class Op>
HWY_INLINE F32x16 join_rows(const float* p, size_t step, const RowLanes<kWidth>& lanes, Op op) {
  return each_part([&](size_t i) HWY_ATTR {
    return join_part<kWidth>(p + i * kPartLanes * step, step, lanes, op);
  });
}
#endif

// Columns [begin, begin + count), at most sixteen, of `groups` sixteens of rows, one behind the
// other from p on: what joins them to out. Fifteen floats behind them may be read.
struct Columns {
  size_t of_row, begin, count;
};
template <size_t kWidth, class Op>
HWY_INLINE void join_groups(const float* p, const Columns& columns, size_t groups, float* out,
                            Op op) {
  const RowLanes<kWidth> lanes(columns.count);
  for (size_t g = 0; g < groups; ++g) {
    const float* at = p + g * kLanes * columns.of_row + columns.begin;
    store_raw(join_rows<kWidth>(at, columns.of_row, lanes, op), out + g * kLanes);
  }
}
template <class Op>
void join_columns(const float* p, const Columns& columns, size_t groups, float* out, Op op) {
  if (columns.count <= 4) return join_groups<4>(p, columns, groups, out, op);
  if (columns.count <= 8) return join_groups<8>(p, columns, groups, out, op);
  join_groups<16>(p, columns, groups, out, op);
}

// Brings numbers of sixteen rows, one behind the other, to all elements of these.
class RowSpread {
 public:
  // Rows of at most thirty-two elements.
  explicit RowSpread(size_t cols) {
    size_t row = 0, column = 0;
    for (size_t part = 0; part < cols * kParts; ++part) {
      first_[part] = static_cast<uint32_t>(row);
      for (size_t lane = 0; lane < kPartLanes; ++lane) {
        index_[part * kPartLanes + lane] = static_cast<uint32_t>(row) - first_[part];
        if (++column == cols) {
          column = 0;
          ++row;
        }
      }
    }
  }
  // For vector v of their elements. Sixteen floats behind those at `of_rows` may be read.
  HWY_INLINE F32x16 operator()(const float* of_rows, size_t v) const {
    return each_part([&](size_t i) HWY_ATTR {
      const TagF32 d;
      const size_t part = v * kParts + i;
      const auto index = hn::IndicesFromVec(d, hn::Load(TagU32(), index_ + part * kPartLanes));
      return hn::TableLookupLanes(hn::LoadU(d, of_rows + first_[part]), index);
    });
  }

 private:
  alignas(64) uint32_t index_[2 * kLanes * kLanes];
  uint32_t first_[2 * kLanes * kParts];
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
