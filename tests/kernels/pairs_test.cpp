// SPDX-License-Identifier: Apache-2.0
// Pairs of vectors and sums over lanes on every instruction set, against the scalar conversions and
// the tree written out.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/half.h"
#include "kernels/each_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pairs_test.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

// `first` of each pair to out[0..16), `second` to out[16..32).
template <class T>
void load_all(const T* in, float* out, size_t n) {
  for (size_t i = 0; i < n; i += kPair) {
    const Pair pair = load_pair(in + i);
    store_raw(pair.first, out + i);
    store_raw(pair.second, out + i + kLanes);
  }
}
void load_f16(const float16_t* in, float* out, size_t n) { load_all(in, out, n); }
void load_bf16(const bfloat16_t* in, float* out, size_t n) { load_all(in, out, n); }

// V pairs at a time; n is a number of those.
template <size_t V, class T>
void store_all(const float* in, T* out, size_t n, bool streaming) {
  for (size_t i = 0; i < n; i += V * kPair) {
    Pair pairs[V];
    for (size_t v = 0; v < V; ++v) {
      pairs[v].first = load16(in + i + v * kPair);
      pairs[v].second = load16(in + i + v * kPair + kLanes);
    }
    store_pairs(pairs, out + i, streaming);
  }
  hwy::FlushStream();
}
void store_f16(const float* in, float16_t* out, size_t n, bool s) { store_all<1>(in, out, n, s); }
void store_bf16(const float* in, bfloat16_t* out, size_t n, bool s) { store_all<1>(in, out, n, s); }
void store_two_f16(const float* in, float16_t* out, size_t n, bool s) {
  store_all<2>(in, out, n, s);
}
void store_two_bf16(const float* in, bfloat16_t* out, size_t n, bool s) {
  store_all<2>(in, out, n, s);
}

void sum_lanes(const float* in, float* out) { store_raw(lane_sums(in), out); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad {
namespace {

HWY_EXPORT(load_f16);
HWY_EXPORT(load_bf16);
HWY_EXPORT(store_f16);
HWY_EXPORT(store_bf16);
HWY_EXPORT(store_two_f16);
HWY_EXPORT(store_two_bf16);
HWY_EXPORT(sum_lanes);

constexpr size_t kLength = 2 * kLanes;  // of a pair

// Where element i of a pair stands: BF16 has the even ones first.
size_t place(size_t i, bfloat16_t) {
  return i % kLength / 2 + (i % 2) * kLanes + i / kLength * kLength;
}
size_t place(size_t i, float16_t) { return i; }

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

template <class T, class Load>
void check_loads(Load&& load) {
  std::vector<T> in(65536 + 1);  // from an odd element on: any alignment
  for (size_t i = 0; i < 65536; ++i) in[i + 1].bits = static_cast<uint16_t>(i);
  std::vector<float> out(65536);
  load(in.data() + 1, out.data(), out.size());
  for (size_t i = 0; i < 65536; ++i) {
    EXPECT_TRUE(same(out[place(i, T{})], to_float(in[i + 1]))) << i;
  }
}

// All rounding boundaries of both types, NaNs of every kind, then anything.
std::vector<float> numbers() {
  std::vector<float> out;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      out.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  for (uint32_t half = 0; half < 0xFC00u; ++half) {
    const float16_t here{static_cast<uint16_t>(half)}, next{static_cast<uint16_t>(half + 1)};
    const float middle = 0.5f * to_float(here) + 0.5f * to_float(next);
    for (const float value :
         {middle, std::nextafter(middle, 1e9f), std::nextafter(middle, -1e9f)}) {
      out.push_back(value);
    }
  }
  std::mt19937 random(1);
  while (out.size() < 1000000 || out.size() % (2 * kLength) != 0) {
    out.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  return out;
}

template <class T, class Store>
void check_stores(const std::vector<float>& in, Store&& store) {
  std::vector<T> memory(in.size() + 64);
  for (const bool streaming : {false, true}) {
    auto address = reinterpret_cast<uintptr_t>(memory.data());
    address = (address + 63) / 64 * 64 + (streaming ? 0 : sizeof(T));
    T* out = reinterpret_cast<T*>(address);
    store(in.data(), out, in.size(), streaming);
    size_t wrong = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      if (out[i].bits != from_float<T>(in[place(i, T{})]).bits) ++wrong;
    }
    EXPECT_EQ(wrong, 0u) << (streaming ? "streaming" : "ordinary");
  }
}

TEST(Pairs, LoadEveryElement) {
  for_each_target([] {
    check_loads<float16_t>(HWY_DYNAMIC_DISPATCH(load_f16));
    check_loads<bfloat16_t>(HWY_DYNAMIC_DISPATCH(load_bf16));
  });
}

TEST(Pairs, StoreEveryRoundingBoundary) {
  const std::vector<float> in = numbers();
  for_each_target([&] {
    check_stores<float16_t>(in, HWY_DYNAMIC_DISPATCH(store_f16));
    check_stores<bfloat16_t>(in, HWY_DYNAMIC_DISPATCH(store_bf16));
    check_stores<float16_t>(in, HWY_DYNAMIC_DISPATCH(store_two_f16));
    check_stores<bfloat16_t>(in, HWY_DYNAMIC_DISPATCH(store_two_bf16));
  });
}

TEST(LaneSums, JoinLanesInPairs) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0.0f, 1000.0f);
  for (int round = 0; round < 100; ++round) {
    std::vector<float> in(kLanes * kLanes);
    for (float& value : in) value = normal(random);
    std::vector<float> expected;
    for (size_t k = 0; k < kLanes; ++k) {
      std::vector<float> v(&in[k * kLanes], &in[k * kLanes] + kLanes);
      for (size_t half = kLanes / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) v[i] += v[i + half];
      }
      expected.push_back(v[0]);
    }
    for_each_target([&] {
      std::vector<float> out(kLanes);
      HWY_DYNAMIC_DISPATCH(sum_lanes)(in.data(), out.data());
      EXPECT_EQ(out, expected);
    });
  }
}

}  // namespace
}  // namespace aclgrad
#endif  // HWY_ONCE
