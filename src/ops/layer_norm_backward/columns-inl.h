// SPDX-License-Identifier: Apache-2.0
// The second visit of up to sixteen rows, down the columns: dx, and the chains of dgamma and dbeta.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_COLUMNS_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_COLUMNS_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_COLUMNS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "aclnn/acl_meta.h"
#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/strips-inl.h"
#include "ops/layer_norm_backward/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// How dx leaves the registers.
struct Store {
  aclDataType dtype;  // undefined: dx is not wanted
  bool streaming;     // past the caches: every strip begins a line then
  bool behind;        // a strip may be written where a row's last columns begin, before the row
                      // behind it is: rows follow each other, and are open

  // Any dtype, NaN made canonical. The dtype is decided per store: the branch always goes the same
  // way, and there is one instantiation instead of three.
  template <class T>
  void put(void* row, size_t at, size_t count, const Strip<T>& strip) const {
    alignas(64) float in_order[kStrip<T>];
    store_in_order<T>(strip, in_order);
    for (size_t i = 0; i < count; i += kLanes) {
      const F32x16 v = load16(in_order + i);
      const size_t lanes = std::min(kLanes, count - i);
      if (dtype == ACL_FLOAT) {
        write(static_cast<float*>(row) + at + i, lanes, v);
      } else if (dtype == ACL_FLOAT16) {
        write(static_cast<float16_t*>(row) + at + i, lanes, v);
      } else {
        write(static_cast<bfloat16_t*>(row) + at + i, lanes, v);
      }
    }
  }
  template <class T>
  HWY_INLINE static void write(T* to, size_t lanes, const F32x16& v) {
    if (lanes < kLanes) {
      store_first(v, to, lanes);
    } else {
      store16(v, to);
    }
  }
};

// dx goes where its rows lie. (Else a function of a row, a constant, a strip of its dx without a
// NaN and the number of columns in it.)
struct ToRows {};

// R rows of a group, from row `first` on. kPlain: dx has the dtype of x and holds no NaN. kFetch:
// how the next rows are asked for (second_prefetch<kFetch>()).
template <class T, size_t R, bool kPlain, Fetch kFetch>
struct SecondVisit {
  static constexpr size_t kVectors = kStripVectors<T>;

  // Copies, because the compiler must assume that a store changes what stands in `rows`.
  HWY_INLINE SecondVisit(const Rows<T>& rows, size_t first, const Store& how)
      : ahead(rows.ahead), store(how) {
    for_constants<R>([&](auto r) ACLGRAD_INLINED {
      dy_row[r] = rows.dy[first + r];
      x_row[r] = rows.x[first + r];
      dx_row[r] = rows.dx[first + r];
      const TagF32 d;
      mean[r] = hn::Set(d, rows.mean[first + r]);
      rstd[r] = hn::Set(d, rows.rstd[first + r]);
      mean_g[r] = hn::Set(d, rows.mean_g[first + r]);
      mean_gx[r] = hn::Set(d, rows.mean_gx[first + r]);
    });
  }

  // `count` columns of a strip, in some vectors, a constant. `chain` holds their FP32 chains, those
  // of dgamma and dbeta by turns.
  template <class Vectors, class Out = ToRows>
  HWY_INLINE void add_strip(const float* gamma_row, size_t at, size_t count, bool whole,
                            Vectors vectors, float* chain, Out out = {}) const {
    constexpr bool kToRows = std::is_same_v<Out, ToRows>;
    const Strip<T> gamma = load_numbers<T>(gamma_row + at);
    F32x16 dgamma[vectors], dbeta[vectors];
    for_constants<vectors>([&](auto i) ACLGRAD_INLINED {
      dgamma[i] = load16(chain + 2 * i * kLanes);
      dbeta[i] = load16(chain + (2 * i + 1) * kLanes);
    });
    for_constants<R>([&](auto r) ACLGRAD_INLINED {
      const T* dy_at = dy_row[r] + at;
      const T* x_at = x_row[r] + at;
      second_prefetch<kFetch>(dy_at, x_at, ahead);
      const auto dx_at = [&](size_t i, size_t part, VecF32 dy, VecF32 x) ACLGRAD_INLINED {
        const VecF32 xhat = hn::Mul(hn::Sub(x, mean[r]), rstd[r]);
        dgamma[i].part[part] = fused(dy, xhat, dgamma[i].part[part]);
        dbeta[i].part[part] = hn::Add(dbeta[i].part[part], dy);
        const VecF32 centred = fused_minus(dy, gamma.v[i].part[part], mean_g[r]);
        return hn::Mul(minus_fused(xhat, mean_gx[r], centred), rstd[r]);
      };
#if HWY_TARGET != HWY_SCALAR
      if constexpr (kPlain && kToRows) {
        if (whole) {
          // Part by part: of AVX2's sixteen registers eight hold chains.
          PackedStrip<T> packed_dx;
          for_parts([&](auto part) ACLGRAD_INLINED {
            const StripPart<T> dy = load_strip_part(dy_at, part);
            const StripPart<T> x = load_strip_part(x_at, part);
            StripPart<T> dx;
            for_constants<kVectors>(
                [&](auto i) ACLGRAD_INLINED { dx.v[i] = dx_at(i, part, dy.v[i], x.v[i]); });
            packed_dx.put(part, dx);
          });
          return packed_dx.store(static_cast<T*>(dx_row[r]) + at, store.streaming);
        }
      }
#endif
      const Strip<T> dy = whole ? load_strip(dy_at) : load_strip_first(dy_at, count);
      const Strip<T> x = whole ? load_strip(x_at) : load_strip_first(x_at, count);
      Strip<T> dx;
      dx.v[kVectors - 1] = zero16();
      for_constants<vectors>([&](auto i) ACLGRAD_INLINED {
        ACLGRAD_PARTS
        for (size_t part = 0; part < kParts; ++part) {
          dx.v[i].part[part] = dx_at(i, part, dy.v[i].part[part], x.v[i].part[part]);
        }
      });
      if constexpr (!kToRows) {
        out(r, dx, count);
      } else if constexpr (kPlain) {
        T* to = static_cast<T*>(dx_row[r]) + at;
        whole ? store_clean_strip<T>(dx, to, store.streaming) : store_clean_first<T>(dx, to, count);
      } else if (store.dtype != ACL_DT_UNDEFINED) {
        store.put<T>(dx_row[r], at, count, dx);
      }
    });
    for_constants<vectors>([&](auto i) ACLGRAD_INLINED {
      store_raw(dgamma[i], chain + 2 * i * kLanes);
      store_raw(dbeta[i], chain + (2 * i + 1) * kLanes);
    });
  }

  // Columns [begin, end). What AVX2 would read and write in pieces, the last ones of several rows,
  // comes first where what lies behind them in each row comes later.
  template <class Out = ToRows>
  HWY_INLINE void add_columns(const float* gamma_row, size_t begin, size_t end, float* chain,
                              Out out = {}) const {
    size_t at = begin;
    if (kPlain && kReadsWhole && std::is_same_v<Out, ToRows> && store.behind) {
      const size_t last = end - (end - begin) % kStrip<T>;
      if (last < end) {
        add_strip(gamma_row, last, kStrip<T>, true, std::integral_constant<size_t, kVectors>(),
                  chain + 2 * (last - begin));
      }
      end = last;
    }
    for (; at + kStrip<T> <= end; at += kStrip<T>, chain += 2 * kStrip<T>) {
      add_strip(gamma_row, at, kStrip<T>, true, std::integral_constant<size_t, kVectors>(), chain,
                out);
    }
    if (at == end) return;
    with_vectors_of<T>(end - at, [&](auto vectors) ACLGRAD_INLINED {
      add_strip(gamma_row, at, end - at, false, vectors, chain, out);
    });
  }

  const T* dy_row[R];
  const T* x_row[R];
  void* dx_row[R];
  VecF32 mean[R], rstd[R], mean_g[R], mean_gx[R];
  const Ahead ahead;
  const Store store;
};

// Second visit, columns [begin, end) of rows [first, last), four or two rows at a time: the chains
// of a column are loaded and stored once for them. (Two are enough where every store decides on a
// dtype.) Or one after the other: rows.one_by_one.
template <class T, bool kPlain, Fetch kFetch = Fetch::kTwice>
void write_columns(const Rows<T>& rows, size_t first, size_t last, const float* gamma,
                   const Store& store, size_t begin, size_t end, float* chain) {
  size_t r = first;
  const auto visit = [&](auto count) ACLGRAD_INLINED {
    for (; r + count <= last; r += count) {
      SecondVisit<T, count, kPlain, kFetch>(rows, r, store).add_columns(gamma, begin, end, chain);
    }
  };
  if (!kPlain || !rows.one_by_one) {
    if constexpr (kPlain) visit(std::integral_constant<size_t, 4>());
    visit(std::integral_constant<size_t, 2>());
  }
  visit(std::integral_constant<size_t, 1>());
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
