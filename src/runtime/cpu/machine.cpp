// SPDX-License-Identifier: Apache-2.0
#include "runtime/cpu/machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

namespace aclgrad::machine {
namespace {

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

// The number a file begins with; "max" and unreadable files have none.
std::optional<size_t> read_number(const std::string& path) {
  std::ifstream file(path);
  unsigned long long number = 0;
  if (!(file >> number)) return std::nullopt;
  return static_cast<size_t>(number);
}

// The number behind `key` in a file of "key number" lines, for example "MemTotal: 16 kB".
std::optional<size_t> read_entry(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    unsigned long long number = 0;
    if (words >> name >> number && name == key) return static_cast<size_t>(number);
  }
  return std::nullopt;
}

struct Group {
  std::string folder;
  const char* limit;
  const char* usage;
  const char* inactive;  // in memory.stat: page cache that goes when memory is wanted
};

// The cgroup of this process that limits memory, and how its files are named.
std::optional<Group> own_group() {
  std::ifstream file("/proc/self/cgroup");
  std::optional<Group> found;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",," && !found) {
      found = Group{"/sys/fs/cgroup" + path, "/memory.max", "/memory.current", "inactive_file"};
    } else if (controllers.find(",memory,") != std::string::npos) {
      found = Group{"/sys/fs/cgroup/memory" + path, "/memory.limit_in_bytes",
                    "/memory.usage_in_bytes", "total_inactive_file"};
    }
  }
  return found;
}

// Every group up to the root limits; inside a container only the root may be visible.
void apply_groups(MemoryInfo& info) {
  const std::optional<Group> group = own_group();
  if (!group) return;
  std::string folder = group->folder;
  while (folder.size() >= std::string("/sys/fs/cgroup").size()) {
    const size_t limit = read_number(folder + group->limit).value_or(kUnlimited);
    if (limit < info.total) info.total = limit;
    if (limit != kUnlimited) {
      const size_t usage = read_number(folder + group->usage).value_or(0);
      const size_t cache = read_entry(folder + "/memory.stat", group->inactive).value_or(0);
      const size_t used = usage - std::min(usage, cache);
      info.free = std::min(info.free, limit - std::min(limit, used));
    }
    const size_t slash = folder.rfind('/');
    if (slash == std::string::npos) break;
    folder.resize(slash);
  }
  info.free = std::min(info.free, info.total);
}

}  // namespace

MemoryInfo memory_info() {
  constexpr size_t kKib = 1024;
  MemoryInfo info;
  const auto pages = static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto total = read_entry("/proc/meminfo", "MemTotal:");
  info.total = total ? *total * kKib : pages * page;
  const auto available = read_entry("/proc/meminfo", "MemAvailable:");
  info.free = available ? *available * kKib : static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * page;
  apply_groups(info);
  return info;
}

int64_t processors() noexcept {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

int64_t last_level_cache() noexcept {
  constexpr int64_t kMib = int64_t{1} << 20;
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    const long bytes = sysconf(level);
    if (bytes > 0) return bytes;
  }
  return kMib;
}

}  // namespace aclgrad::machine
