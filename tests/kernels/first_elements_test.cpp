// SPDX-License-Identifier: Apache-2.0
// The first elements of a vector or a strip on every instruction set: those are loaded, zeros stand
// behind them, and nothing else is read: the next page is closed.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "kernels/each_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/first_elements_test.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/strips-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void vector_of(const void* p, size_t count, float* out) {
  store_raw(load_first(static_cast<const T*>(p), count), out);
}
void vector_of_f32(const void* p, size_t count, float* out) { vector_of<float>(p, count, out); }
void vector_of_f16(const void* p, size_t count, float* out) { vector_of<float16_t>(p, count, out); }
void vector_of_bf16(const void* p, size_t count, float* out) {
  vector_of<bfloat16_t>(p, count, out);
}

template <class T>
void alone(const void* p, size_t count, float* out) {
  store_raw(load_alone(static_cast<const T*>(p), count), out);
}
void alone_f32(const void* p, size_t count, float* out) { alone<float>(p, count, out); }
void alone_f16(const void* p, size_t count, float* out) { alone<float16_t>(p, count, out); }
void alone_bf16(const void* p, size_t count, float* out) { alone<bfloat16_t>(p, count, out); }

template <class T>
void strip_of(const void* p, size_t count, float* out) {
  store_in_order<T>(load_strip_first(static_cast<const T*>(p), count), out);
}
void strip_of_f32(const void* p, size_t count, float* out) { strip_of<float>(p, count, out); }
void strip_of_f16(const void* p, size_t count, float* out) { strip_of<float16_t>(p, count, out); }
void strip_of_bf16(const void* p, size_t count, float* out) { strip_of<bfloat16_t>(p, count, out); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad {
namespace {

HWY_EXPORT(vector_of_f32);
HWY_EXPORT(vector_of_f16);
HWY_EXPORT(vector_of_bf16);
HWY_EXPORT(alone_f32);
HWY_EXPORT(alone_f16);
HWY_EXPORT(alone_bf16);
HWY_EXPORT(strip_of_f32);
HWY_EXPORT(strip_of_f16);
HWY_EXPORT(strip_of_bf16);

// A page between two that nobody may touch.
class LonelyPage {
 public:
  LonelyPage() {
    void* const all = mmap(nullptr, 3 * size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return;
    begin_ = static_cast<char*>(all) + size_;
    if (mprotect(begin_, size_, PROT_READ | PROT_WRITE) != 0) begin_ = nullptr;
  }
  ~LonelyPage() {
    if (begin_ != nullptr) munmap(begin_ - size_, 3 * size_);
  }
  LonelyPage(const LonelyPage&) = delete;
  LonelyPage& operator=(const LonelyPage&) = delete;

  char* begin() const { return begin_; }
  char* end() const { return begin_ + size_; }

 private:
  size_t size_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* begin_ = nullptr;
};

// Element i of `count` is a number of its own, none of them zero.
template <class T>
void fill(char* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const T value = from_float<T>(static_cast<float>(i + 1) * -0.25f);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

// load(p, count, out) puts `most` numbers to out, for every count of them at either end of a page.
template <class T, class Load>
void expect_first(size_t most, Load&& load) {
  const LonelyPage page;
  ASSERT_NE(page.begin(), nullptr);
  for (size_t count = 0; count <= most; ++count) {
    const size_t bytes = count * sizeof(T);
    for (char* at : {page.begin(), page.end() - bytes}) {
      std::memset(page.begin(), 0x55, static_cast<size_t>(page.end() - page.begin()));
      fill<T>(at, count);
      std::vector<float> out(most, -1.0f);
      load(at, count, out.data());
      for (size_t i = 0; i < most; ++i) {
        const float expected = i < count ? static_cast<float>(i + 1) * -0.25f : 0.0f;
        EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected))
            << "element " << i << " of " << count;
      }
    }
  }
}

TEST(FirstElements, OfAVector) {
  for_each_target([] {
    expect_first<float>(kLanes, HWY_DYNAMIC_DISPATCH(vector_of_f32));
    expect_first<float16_t>(kLanes, HWY_DYNAMIC_DISPATCH(vector_of_f16));
    expect_first<bfloat16_t>(kLanes, HWY_DYNAMIC_DISPATCH(vector_of_bf16));
  });
}

TEST(FirstElements, OfAVectorFromLinesOfTheirOwn) {
  for_each_target([] {
    expect_first<float>(kLanes, HWY_DYNAMIC_DISPATCH(alone_f32));
    expect_first<float16_t>(kLanes, HWY_DYNAMIC_DISPATCH(alone_f16));
    expect_first<bfloat16_t>(kLanes, HWY_DYNAMIC_DISPATCH(alone_bf16));
  });
}

TEST(FirstElements, OfAStrip) {
  for_each_target([] {
    expect_first<float>(kLanes, HWY_DYNAMIC_DISPATCH(strip_of_f32));
    expect_first<float16_t>(2 * kLanes, HWY_DYNAMIC_DISPATCH(strip_of_f16));
    expect_first<bfloat16_t>(2 * kLanes, HWY_DYNAMIC_DISPATCH(strip_of_bf16));
  });
}

}  // namespace
}  // namespace aclgrad
#endif  // HWY_ONCE
