// SPDX-License-Identifier: Apache-2.0
// The loops of both views are first brought to a normal form: no dimension of size 1, target
// strides positive and falling, neighbours that step as one joined. Three inner loops do the rest:
// runs that are dense on both sides (memcpy), runs of any strides, and square tiles where the dense
// dimension of the source is not that of the target (a transposition).
//
// The work is cut into items of one run or tile, and blocks of items of about 64 KiB.
#include "kernels/cpu/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/dtype.h"
#include "kernels/cpu/parallel.h"

namespace aclgrad {
namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 16;
// A tile takes a cache line of the source from each of many lines, and writes long runs of the
// target: its stores are what a transposition waits for.
constexpr int64_t kTileBytes = 1 << 13;
template <class Element>
inline constexpr auto kTileLines = static_cast<int64_t>(64 / sizeof(Element));
template <class Element>
inline constexpr int64_t kTileRun = kTileBytes / kTileLines<Element> /
                                    static_cast<int64_t>(sizeof(Element));
// Elements below which a transposition is not worth its buffer.
constexpr int64_t kLeastTile = 16;

struct Loop {
  int64_t count = 1;
  int64_t source = 0;  // strides in elements
  int64_t target = 0;
};

int64_t magnitude(int64_t value) { return value < 0 ? -value : value; }

// Strides stay in elements; the addresses in bytes.
struct Loops {
  std::array<Loop, kMaxRank> loops{};
  int rank = 0;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  int64_t size = 0;  // bytes of an element

  Loop& at(int index) { return loops[static_cast<size_t>(index)]; }
  const Loop& at(int index) const { return loops[static_cast<size_t>(index)]; }
  void remove(int index) {
    std::rotate(loops.begin() + index, loops.begin() + index + 1, loops.begin() + rank);
    --rank;
  }
};

// False when there is nothing to copy.
bool collect(const View& from, const View& to, Loops& out) {
  for (int i = 0; i < to.rank; ++i) {
    const auto index = static_cast<size_t>(i);
    const int64_t count = to.dims[index];
    if (count == 0) return false;
    if (count == 1) continue;
    Loop loop{count, from.strides[index], to.strides[index]};
    if (loop.target < 0) {
      out.source += (count - 1) * loop.source * out.size;
      out.target += (count - 1) * loop.target * out.size;
      loop.source = -loop.source;
      loop.target = -loop.target;
    }
    out.at(out.rank++) = loop;
  }
  return true;
}

void normalise(Loops& loops) {
  for (int i = 1; i < loops.rank; ++i) {  // insertion, stable: at most eight
    for (int j = i; j > 0 && loops.at(j).target > loops.at(j - 1).target; --j) {
      std::swap(loops.at(j), loops.at(j - 1));
    }
  }
  for (int i = loops.rank - 1; i > 0; --i) {
    const Loop inner = loops.at(i);
    Loop& outer = loops.at(i - 1);
    if (outer.target != inner.target * inner.count || outer.source != inner.source * inner.count) {
      continue;
    }
    outer = Loop{outer.count * inner.count, inner.source, inner.target};
    loops.remove(i);
  }
}

// The items: a grid of at most kMaxRank + 1 loops, each with the element offset of one step.
struct Grid {
  std::array<Loop, kMaxRank + 1> loops{};
  int rank = 0;
  int64_t items = 1;

  void add(const Loop& loop) {
    loops[static_cast<size_t>(rank++)] = loop;
    items *= loop.count;
  }
};

// Walks the items of a grid in order, from any of them on.
class Cursor {
 public:
  Cursor(const Grid& grid, int64_t item) : grid_(grid) {
    for (int i = grid.rank - 1; i >= 0; --i) {
      const auto index = static_cast<size_t>(i);
      const Loop& loop = grid.loops[index];
      position_[index] = item % loop.count;
      item /= loop.count;
      source_ += position_[index] * loop.source;
      target_ += position_[index] * loop.target;
    }
  }
  void advance() {
    for (int i = grid_.rank - 1; i >= 0; --i) {
      const auto index = static_cast<size_t>(i);
      const Loop& loop = grid_.loops[index];
      source_ += loop.source;
      target_ += loop.target;
      if (++position_[index] < loop.count) return;
      source_ -= loop.count * loop.source;
      target_ -= loop.count * loop.target;
      position_[index] = 0;
    }
  }
  int64_t source() const { return source_; }
  int64_t target() const { return target_; }
  int64_t position(int from_last) const {
    return position_[static_cast<size_t>(grid_.rank - 1 - from_last)];
  }

 private:
  const Grid& grid_;
  std::array<int64_t, kMaxRank + 1> position_{};
  int64_t source_ = 0;
  int64_t target_ = 0;
};

// visit(cursor) for every item.
template <class Visit>
void for_each_item(const Grid& grid, int64_t item_bytes, CopyOrder order, Visit&& visit) {
  const int64_t per_block =
      order == CopyOrder::kSequential ? grid.items : std::max<int64_t>(1, kBlockBytes / item_bytes);
  parallel_blocks(ceil_div(grid.items, per_block), [&](int64_t block) {
    const int64_t first = block * per_block;
    const int64_t last = std::min(grid.items, first + per_block);
    Cursor cursor(grid, first);
    for (int64_t item = first; item < last; ++item) {
      visit(cursor);
      cursor.advance();
    }
  });
}

template <class Element>
Element load(const std::byte* address) {
  Element value;
  std::memcpy(&value, address, sizeof value);
  return value;
}
template <class Element>
void store(std::byte* address, Element value) {
  std::memcpy(address, &value, sizeof value);
}

template <class Element>
void copy_run(const std::byte* source, int64_t source_step, std::byte* target, int64_t target_step,
              int64_t count) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Element));
  if (target_step == 1 && source_step == 1) {
    std::memcpy(target, source, static_cast<size_t>(count * kSize));
  } else if (target_step == 1 && source_step == 0) {
    const Element value = load<Element>(source);
    for (int64_t i = 0; i < count; ++i) store(target + i * kSize, value);
  } else if (target_step == 1) {
    const int64_t step = source_step * kSize;
    for (int64_t i = 0; i < count; ++i) store(target + i * kSize, load<Element>(source + i * step));
  } else if (source_step == 1) {
    const int64_t step = target_step * kSize;
    for (int64_t i = 0; i < count; ++i) store(target + i * step, load<Element>(source + i * kSize));
  } else {
    for (int64_t i = 0; i < count; ++i) {
      store(target + i * target_step * kSize, load<Element>(source + i * source_step * kSize));
    }
  }
}

// Long runs are cut, short ones are items of their own.
template <class Element>
void copy_runs(const Loops& loops, CopyOrder order) {
  const Loop run = loops.rank == 0 ? Loop{} : loops.at(loops.rank - 1);
  const int64_t chunk = std::min(run.count, kBlockBytes / loops.size);
  Grid grid;
  for (int i = 0; i + 1 < loops.rank; ++i) grid.add(loops.at(i));
  grid.add(Loop{ceil_div(run.count, chunk), chunk * run.source, chunk * run.target});
  for_each_item(grid, chunk * loops.size, order, [&](const Cursor& cursor) {
    copy_run<Element>(loops.source + cursor.source() * loops.size, run.source,
                      loops.target + cursor.target() * loops.size, run.target,
                      std::min(chunk, run.count - cursor.position(0) * chunk));
  });
}

// Reads the source along its lines into a buffer and writes the target along its own. The buffer's
// rows are one element longer than the tile, so that walking a column does not stay in one cache
// set.
template <class Element>
void copy_tile(const std::byte* source, std::byte* target, const Loop& lines, int64_t line_count,
               const Loop& run, int64_t run_count) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(Element));
  constexpr int64_t kRow = kTileLines<Element> + 1;
  std::array<std::byte, static_cast<size_t>(kTileRun<Element> * kRow * kSize)> buffer;
  for (int64_t i = 0; i < run_count; ++i) {
    copy_run<Element>(source + i * run.source * kSize, lines.source,
                      buffer.data() + i * kRow * kSize, 1, line_count);
  }
  for (int64_t j = 0; j < line_count; ++j) {
    copy_run<Element>(buffer.data() + j * kSize, kRow, target + j * lines.target * kSize,
                      run.target, run_count);
  }
}

// `line`: the loop along which the source is densest; the target is densest along the last one.
template <class Element>
void copy_tiles(Loops loops, int line, CopyOrder order) {
  constexpr int64_t kLines = kTileLines<Element>;
  constexpr int64_t kRun = kTileRun<Element>;
  const Loop run = loops.at(loops.rank - 1);
  const Loop lines = loops.at(line);
  Grid grid;
  for (int i = 0; i + 1 < loops.rank; ++i) {
    if (i != line) grid.add(loops.at(i));
  }
  grid.add(Loop{ceil_div(lines.count, kLines), kLines * lines.source, kLines * lines.target});
  grid.add(Loop{ceil_div(run.count, kRun), kRun * run.source, kRun * run.target});
  for_each_item(grid, kTileBytes, order, [&](const Cursor& cursor) {
    copy_tile<Element>(loops.source + cursor.source() * loops.size,
                       loops.target + cursor.target() * loops.size, lines,
                       std::min(kLines, lines.count - cursor.position(1) * kLines), run,
                       std::min(kRun, run.count - cursor.position(0) * kRun));
  });
}

// The loop along which the source is denser than along the last one; -1 for none.
int transposed_loop(const Loops& loops) {
  if (loops.rank < 2) return -1;
  const Loop& run = loops.at(loops.rank - 1);
  int best = -1;
  int64_t step = magnitude(run.source);
  for (int i = 0; i + 1 < loops.rank; ++i) {
    const Loop& loop = loops.at(i);
    if (loop.source == 0 || magnitude(loop.source) >= step) continue;
    best = i;
    step = magnitude(loop.source);
  }
  return best >= 0 && run.count * loops.at(best).count >= kLeastTile ? best : -1;
}

template <class Element>
void copy(const Loops& loops, CopyOrder order) {
  const int line = transposed_loop(loops);
  if (line < 0) {
    copy_runs<Element>(loops, order);
  } else {
    copy_tiles<Element>(loops, line, order);
  }
}

struct Sixteen {
  uint64_t low;
  uint64_t high;
};

}  // namespace

void strided_copy(const View& from, const void* source, const View& to, void* target,
                  CopyOrder order) noexcept {
  Loops loops;
  loops.source = static_cast<const std::byte*>(source);
  loops.target = static_cast<std::byte*>(target);
  loops.size = static_cast<int64_t>(dtype_size(to.dtype));
  if (!collect(from, to, loops)) return;
  normalise(loops);
  switch (loops.size) {
    case 1:
      return copy<uint8_t>(loops, order);
    case 2:
      return copy<uint16_t>(loops, order);
    case 4:
      return copy<uint32_t>(loops, order);
    case 8:
      return copy<uint64_t>(loops, order);
    default:
      return copy<Sixteen>(loops, order);
  }
}

}  // namespace aclgrad
