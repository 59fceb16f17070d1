// SPDX-License-Identifier: Apache-2.0
// The sixteen lanes on every instruction set: conversions over all 16-bit inputs and all rounding
// boundaries, the one rounding of fma, sums with the same bits everywhere.
#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/each_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lanes_test.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void load_all(const T* in, float* out, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) store_raw(load16(in + i), out + i);
}
void load_f16(const float16_t* in, float* out, size_t n) { load_all(in, out, n); }
void load_bf16(const bfloat16_t* in, float* out, size_t n) { load_all(in, out, n); }

template <class T>
void store_all(const float* in, T* out, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) {
    if (can_stream(out + i) && i % (2 * kLanes) == 0) {
      stream16(load16(in + i), out + i);
    } else {
      store16(load16(in + i), out + i);
    }
  }
  hwy::FlushStream();
}
void store_f32(const float* in, float* out, size_t n) { store_all(in, out, n); }
void store_f16(const float* in, float16_t* out, size_t n) { store_all(in, out, n); }
void store_bf16(const float* in, bfloat16_t* out, size_t n) { store_all(in, out, n); }

void fma_all(const float* a, const float* b, const float* c, float* out, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) {
    store_raw(fma(load16(a + i), load16(b + i), load16(c + i)), out + i);
  }
}

void sums_of(const float* x, size_t n, double* out) {
  double sums[2];
  row_sums<2>(n, sums, [&](size_t i, size_t count, F32x16(&acc)[2]) HWY_ATTR {
    const F32x16 v = count == kLanes ? load16(x + i * kLanes) : load_first(x + i * kLanes, count);
    acc[0] = add(acc[0], v);
    acc[1] = fma(v, v, acc[1]);
  });
  out[0] = sums[0];
  out[1] = sums[1];
}

void keep(const float* x, size_t count, float* out) {
  store_raw(keep_first(load16(x), count), out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad {
namespace {

HWY_EXPORT(load_f16);
HWY_EXPORT(load_bf16);
HWY_EXPORT(store_f32);
HWY_EXPORT(store_f16);
HWY_EXPORT(store_bf16);
HWY_EXPORT(fma_all);
HWY_EXPORT(sums_of);
HWY_EXPORT(keep);

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

// An FP16 value by its definition, independent of the code under test.
float float16_by_definition(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  const float value = exponent == 0
                          ? std::ldexp(static_cast<float>(mantissa), -24)
                          : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return sign * value;
}

void expect_same_float(float expected, float got, uint32_t input) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << std::hex << input;
  } else {
    EXPECT_EQ(bits(expected), bits(got)) << std::hex << input;
  }
}

TEST(Lanes, LoadEveryHalf) {
  std::vector<float16_t> f16(65536);
  std::vector<bfloat16_t> bf16(65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    f16[i].bits = static_cast<uint16_t>(i);
    bf16[i].bits = static_cast<uint16_t>(i);
    expect_same_float(float16_by_definition(f16[i].bits), to_float(f16[i]), i);
  }
  for_each_target([&] {
    std::vector<float> from_f16(65536), from_bf16(65536);
    HWY_DYNAMIC_DISPATCH(load_f16)(f16.data(), from_f16.data(), f16.size());
    HWY_DYNAMIC_DISPATCH(load_bf16)(bf16.data(), from_bf16.data(), bf16.size());
    for (uint32_t i = 0; i < 65536; ++i) {
      expect_same_float(float16_by_definition(f16[i].bits), from_f16[i], i);
      EXPECT_EQ(i << 16, bits(from_bf16[i]));
    }
  });
}

// Every half, its neighbours' midpoints and the floats beside those, both signs; plus NaNs.
std::vector<float> rounding_boundaries() {
  std::vector<float> values;
  const auto push = [&](uint32_t word) {
    for (const uint32_t delta : {0u, 1u, 0xFFFFFFFFu}) {
      values.push_back(std::bit_cast<float>(word + delta));
      values.push_back(std::bit_cast<float>((word + delta) ^ 0x80000000u));
    }
  };
  for (uint32_t i = 0; i < 0x7C00u; ++i) {
    const double here = static_cast<double>(float16_by_definition(static_cast<uint16_t>(i)));
    const double next =
        i + 1 == 0x7C00u ? 65536.0
                         : static_cast<double>(float16_by_definition(static_cast<uint16_t>(i + 1)));
    push(bits(static_cast<float>(here)));
    push(bits(static_cast<float>((here + next) / 2)));
  }
  for (uint32_t i = 0; i < 0x8000u; i += 3) {  // bfloat16 boundaries
    push(i << 16);
    push((i << 16) | 0x8000u);
  }
  for (const uint32_t word : {0x7F800000u, 0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0x7FA00000u}) {
    values.push_back(std::bit_cast<float>(word));
    values.push_back(std::bit_cast<float>(word | 0x80000000u));
  }
  while (values.size() % kLanes != 0) values.push_back(0.0f);
  return values;
}

// Nearest even by comparing the two candidates in double.
uint16_t float16_by_search(float value) {
  if (std::isnan(value)) return kCanonicalNanF16;
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520.0) return static_cast<uint16_t>(sign | 0x7C00);
  uint16_t low = 0, high = 0x7BFF;
  while (low < high) {  // the largest half <= magnitude
    const auto middle = static_cast<uint16_t>((low + high + 1) / 2);
    if (static_cast<double>(float16_by_definition(middle)) <= magnitude) {
      low = middle;
    } else {
      high = static_cast<uint16_t>(middle - 1);
    }
  }
  const double below = static_cast<double>(float16_by_definition(low));
  const double above =
      low == 0x7BFF ? 65536.0
                    : static_cast<double>(float16_by_definition(static_cast<uint16_t>(low + 1)));
  const double to_below = magnitude - below, to_above = above - magnitude;
  const bool up = to_above < to_below || (to_above == to_below && (low & 1) != 0);
  return static_cast<uint16_t>(sign | (low + (up ? 1 : 0)));
}

TEST(Lanes, StoreEveryRoundingBoundary) {
  const std::vector<float> in = rounding_boundaries();
  std::vector<uint16_t> expected(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    expected[i] = float16_by_search(in[i]);
    EXPECT_EQ(expected[i], from_float<float16_t>(in[i]).bits) << std::hex << bits(in[i]);
  }
  for_each_target([&] {
    std::vector<float> f32(in.size());
    std::vector<float16_t> f16(in.size());
    std::vector<bfloat16_t> bf16(in.size());
    HWY_DYNAMIC_DISPATCH(store_f32)(in.data(), f32.data(), in.size());
    HWY_DYNAMIC_DISPATCH(store_f16)(in.data(), f16.data(), in.size());
    HWY_DYNAMIC_DISPATCH(store_bf16)(in.data(), bf16.data(), in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_EQ(std::isnan(in[i]) ? kCanonicalNanF32 : bits(in[i]), bits(f32[i]));
      ASSERT_EQ(expected[i], f16[i].bits) << std::hex << bits(in[i]);
      // Nearest even on the 16 low bits, by integer definition.
      const uint32_t word = bits(in[i]);
      const uint32_t low = word & 0xFFFFu;
      uint32_t rounded = word >> 16;
      if (low > 0x8000u || (low == 0x8000u && (rounded & 1u) != 0)) ++rounded;
      if (std::isnan(in[i])) rounded = kCanonicalNanBf16;
      ASSERT_EQ(rounded, uint32_t{bf16[i].bits}) << std::hex << word;
      ASSERT_EQ(rounded, uint32_t{from_float<bfloat16_t>(in[i]).bits}) << std::hex << word;
    }
  });
}

TEST(Lanes, FmaRoundsOnce) {
  constexpr size_t kCount = 1 << 16;
  std::mt19937 random(20260811);
  std::vector<float> a(kCount), b(kCount), c(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    a[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
    b[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
    c[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const uint32_t kind = i % 4;
    if (kind >= 1) {  // the addend near the product: cancellation and ties
      const float product = a[i] * b[i];
      const uint32_t shift = static_cast<uint32_t>(random()) % 50u;
      c[i] = std::ldexp(kind == 1 ? product : -product, static_cast<int>(shift) - 25);
    }
    if (kind == 3) {  // short mantissas make exact ties frequent
      a[i] = std::bit_cast<float>(bits(a[i]) & 0xFFFFF000u);
      b[i] = std::bit_cast<float>(bits(b[i]) & 0xFFFFF000u);
      c[i] = std::bit_cast<float>(bits(c[i]) & 0xFFFFFF00u);
    }
  }
  for_each_target([&] {
    std::vector<float> out(kCount);
    HWY_DYNAMIC_DISPATCH(fma_all)(a.data(), b.data(), c.data(), out.data(), kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const float expected = std::fma(a[i], b[i], c[i]);
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(out[i]) : bits(expected) == bits(out[i]))
          << a[i] << " * " << b[i] << " + " << c[i] << " = " << expected << ", got " << out[i];
    }
  });
}

TEST(Lanes, SumsHaveTheSameBitsAndHoldTheBound) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const size_t n :
       {0u, 1u, 15u, 16u, 17u, 63u, 64u, 65u, 255u, 1000u, 1023u, 1024u, 1025u, 1040u, 50000u}) {
    std::vector<float> x(n);
    for (float& value : x) value = normal(random);
    std::vector<float> constant(n, 0.1f);
    double exact = 0, magnitude = 0;
    for (const float value : x) {
      exact += static_cast<double>(value);
      magnitude += std::fabs(static_cast<double>(value));
    }
    double first[2] = {};
    bool have_first = false;
    for_each_target([&] {
      double got[2];
      HWY_DYNAMIC_DISPATCH(sums_of)(x.data(), n, got);
      EXPECT_LE(std::fabs(got[0] - exact), 8 * 0x1p-24 * magnitude) << n;
      if (!have_first) {
        first[0] = got[0];
        first[1] = got[1];
        have_first = true;
      }
      EXPECT_EQ(std::bit_cast<uint64_t>(first[0]), std::bit_cast<uint64_t>(got[0])) << n;
      EXPECT_EQ(std::bit_cast<uint64_t>(first[1]), std::bit_cast<uint64_t>(got[1])) << n;
      HWY_DYNAMIC_DISPATCH(sums_of)(constant.data(), n, got);
      const double total = static_cast<double>(n) * static_cast<double>(0.1f);
      EXPECT_LE(std::fabs(got[0] - total), 5 * 0x1p-24 * total) << n;
    });
  }
}

TEST(Lanes, KeepFirstClearsNan) {
  std::vector<float> x(kLanes, std::numeric_limits<float>::quiet_NaN());
  for_each_target([&] {
    for (size_t count = 0; count <= kLanes; ++count) {
      std::vector<float> out(kLanes);
      HWY_DYNAMIC_DISPATCH(keep)(x.data(), count, out.data());
      for (size_t i = 0; i < kLanes; ++i) {
        if (i < count) {
          EXPECT_TRUE(std::isnan(out[i]));
        } else {
          EXPECT_EQ(0u, bits(out[i]));
        }
      }
    }
  });
}

}  // namespace
}  // namespace aclgrad
#endif  // HWY_ONCE
