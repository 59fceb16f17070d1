// SPDX-License-Identifier: Apache-2.0
// How the totals of slabs come together, by themselves. (That threads do not race is what the
// operator's tests show under ThreadSanitizer: this file is never compiled for it.)
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "ops/layer_norm_backward/slab_totals.h"

namespace aclgrad::test {
namespace {

using layer_norm_backward::kMostSlabs;
using layer_norm_backward::SlabTotals;

// Numbers of a region.
constexpr int64_t kSize = 8;

// An addition whose order shows, however many follow: whole numbers modulo a prime, exact in FP64.
void add(double* sum, const double* totals) {
  for (int64_t i = 0; i < kSize; ++i) sum[i] = std::fmod(sum[i] * 3 + totals[i], 1000003);
}

double term(int64_t slab, int64_t i) { return static_cast<double>(slab * 10 + i + 1); }

void fill(double* totals, int64_t slab) {
  for (int64_t i = 0; i < kSize; ++i) totals[i] = term(slab, i);
}

// What is left when all slabs are: the joined ones, then the others in order.
std::vector<double> total_of(const SlabTotals& slabs, int64_t count) {
  int64_t next = slabs.joined();
  const double* const first = next == 0 ? slabs.totals(next++) : slabs.sum();
  std::vector<double> sum(first, first + kSize);
  for (; next < count; ++next) add(sum.data(), slabs.totals(next));
  return sum;
}

std::vector<double> expected_total(int64_t count) {
  std::vector<double> sum(kSize), totals(kSize);
  fill(sum.data(), 0);
  for (int64_t slab = 1; slab < count; ++slab) {
    fill(totals.data(), slab);
    add(sum.data(), totals.data());
  }
  return sum;
}

TEST(LayerNormBackwardSlabTotals, OneThreadUsesTwoRegions) {
  std::vector<double> regions(kMostSlabs * kSize);
  for (int64_t count : {int64_t{1}, int64_t{2}, int64_t{7}, kMostSlabs}) {
    SlabTotals slabs(regions.data(), count, count, kSize);
    std::set<const double*> used;
    for (int64_t slab = 0; slab < count; ++slab) {
      double* const totals = slabs.take(slab);
      used.insert(totals);
      fill(totals, slab);
      slabs.leave(slab, totals, add);
    }
    EXPECT_EQ(slabs.joined(), count);
    EXPECT_EQ(used.size(), static_cast<size_t>(std::min(count, int64_t{2})));
    EXPECT_EQ(total_of(slabs, count), expected_total(count));
  }
}

// Several slabs are at work at once and end in any order.
TEST(LayerNormBackwardSlabTotals, AnyOrderOfEnds) {
  constexpr int64_t kCount = 24;
  for (int64_t at_once : {2, 3, 8, 24}) {
    for (int64_t step : {1, 5, 7, 11}) {
      std::vector<double> regions(kCount * kSize, -1);
      SlabTotals slabs(regions.data(), kCount, kCount, kSize);
      std::vector<double*> taken(kCount);
      std::vector<int64_t> at_work;
      int64_t begun = 0;
      for (int64_t ended = 0; ended < kCount; ++ended) {
        while (begun < kCount && begun < ended + at_once) {
          taken[static_cast<size_t>(begun)] = slabs.take(begun);
          fill(taken[static_cast<size_t>(begun)], begun);
          at_work.push_back(begun++);
        }
        const auto which = static_cast<size_t>(ended * step) % at_work.size();
        const int64_t slab = at_work[which];
        at_work.erase(at_work.begin() + static_cast<std::ptrdiff_t>(which));
        slabs.leave(slab, taken[static_cast<size_t>(slab)], add);
      }
      EXPECT_EQ(total_of(slabs, kCount), expected_total(kCount)) << at_once << " " << step;
      EXPECT_GT(slabs.joined(), 0) << at_once << " " << step;
    }
  }
}

// The last one first: nothing can be joined until the first one ends, then two at most.
TEST(LayerNormBackwardSlabTotals, ThoseBehindAGapStay) {
  constexpr int64_t kCount = 6;
  std::vector<double> regions(kCount * kSize);
  SlabTotals slabs(regions.data(), kCount, kCount, kSize);
  std::vector<double*> taken;
  for (int64_t slab = 0; slab < kCount; ++slab) {
    taken.push_back(slabs.take(slab));
    fill(taken.back(), slab);
  }
  EXPECT_EQ(std::set<double*>(taken.begin(), taken.end()).size(), taken.size());
  for (int64_t slab = kCount - 1; slab > 0; --slab) {
    slabs.leave(slab, taken[static_cast<size_t>(slab)], add);
    EXPECT_EQ(slabs.joined(), 0);
    EXPECT_EQ(slabs.sum(), nullptr);
  }
  slabs.leave(0, taken[0], add);
  EXPECT_EQ(slabs.joined(), 2);
  EXPECT_EQ(total_of(slabs, kCount), expected_total(kCount));
}

TEST(LayerNormBackwardSlabTotals, ManyThreads) {
  constexpr int64_t kCount = kMostSlabs;
  std::vector<double> regions(kCount * kSize);
  for (int round = 0; round < 20; ++round) {
    SlabTotals slabs(regions.data(), kCount, kCount, kSize);
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t slab = next++; slab < kCount; slab = next++) {
        double* const totals = slabs.take(slab);
        fill(totals, slab);
        slabs.leave(slab, totals, add);
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(total_of(slabs, kCount), expected_total(kCount));
  }
}

// Fewer regions than slabs, and than threads: who finds none waits, nothing is lost, and nobody
// writes behind the regions.
TEST(LayerNormBackwardSlabTotals, FewRegions) {
  for (const int64_t count : {int64_t{3}, int64_t{24}, kMostSlabs}) {
    for (const int64_t regions : {2, 3, 7, 23}) {
      if (regions >= count) continue;
      for (const int threads : {1, 2, 5}) {
        std::vector<double> memory(static_cast<size_t>((regions + 1) * kSize), -1);
        SlabTotals slabs(memory.data(), regions, count, kSize);
        std::vector<std::atomic<int>> begun(static_cast<size_t>(count));
        std::atomic<int64_t> blocks{0};
        const auto work = [&] {
          for (int64_t block = blocks++; block < count; block = blocks++) {
            const auto [slab, totals] = slabs.begin(block, 64, add);
            ++begun[static_cast<size_t>(slab)];
            // The first ones take longest, so that others wait for their turn.
            if (slab % 5 == 0) std::this_thread::yield();
            fill(totals, slab);
            slabs.leave(slab, totals, add);
          }
        };
        std::vector<std::thread> others;
        for (int i = 1; i < threads; ++i) others.emplace_back(work);
        work();
        for (std::thread& thread : others) thread.join();
        EXPECT_TRUE(std::all_of(begun.begin(), begun.end(), [](int times) { return times == 1; }));
        EXPECT_EQ(total_of(slabs, count), expected_total(count))
            << count << " slabs, " << regions << " regions, " << threads << " threads";
        EXPECT_EQ(memory.back(), -1);
      }
    }
  }
}

TEST(LayerNormBackwardSlabTotals, EveryBlockIsASlabOfItsOwn) {
  const int before = aclgrad_threads();
  for (int threads : {1, 2, 3, 64, 200}) {
    aclgrad_use_threads(threads);
    for (int64_t count :
         {int64_t{1}, int64_t{2}, int64_t{5}, int64_t{64}, int64_t{129}, kMostSlabs}) {
      const SlabTotals slabs(nullptr, count, count, kSize);
      std::vector<int64_t> order(static_cast<size_t>(count)), all(order.size());
      for (int64_t block = 0; block < count; ++block) {
        order[static_cast<size_t>(block)] = slabs.slab_of(block, 64);
      }
      EXPECT_EQ(slabs.slab_of(count - 1, 256), count - 1);
      // Each thread's first one: the first slabs.
      const int64_t runs = run_count(count, threads);
      for (int64_t run = 0; run < runs; ++run) {
        EXPECT_EQ(order[static_cast<size_t>(run_begin(count, runs, run))], run);
      }
      std::sort(order.begin(), order.end());
      std::iota(all.begin(), all.end(), int64_t{0});
      EXPECT_EQ(order, all) << threads << " threads, " << count << " slabs";
    }
  }
  aclgrad_use_threads(before);
}

}  // namespace
}  // namespace aclgrad::test
