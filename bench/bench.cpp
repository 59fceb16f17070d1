// SPDX-License-Identifier: Apache-2.0
#include "bench/bench.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/checked.h"
#include "support/element.h"
#include "support/random.h"

namespace aclgrad::bench {
namespace {

std::vector<Operator>& registry() {
  static std::vector<Operator> all;
  return all;
}

enum class View { kContiguous, kPadded, kTransposed, kOffset, kStrided, kReversed };
constexpr std::pair<const char*, View> kViews[] = {
    {"contiguous", View::kContiguous}, {"padded", View::kPadded},
    {"transposed", View::kTransposed}, {"offset", View::kOffset},
    {"strided", View::kStrided},       {"reversed", View::kReversed}};
View view_in_use = View::kContiguous;
bool with_data = true;
int64_t bytes_of_tensors = 0;

// Where elements lie: between neighbours of each dim, before the first, and in all.
struct Layout {
  Dims strides;
  int64_t offset = 0;
  int64_t storage = 1;
};

Layout layout_of(const Dims& dims) {
  Dims order(dims.size());  // dims from the slowest to the fastest in memory
  std::iota(order.begin(), order.end(), int64_t{0});
  const View view = dims.size() < 2 ? View::kContiguous : view_in_use;
  if (view == View::kTransposed) std::swap(order.end()[-1], order.end()[-2]);
  Layout out{Dims(dims.size()), 0, view == View::kStrided ? 2 : 1};
  for (size_t i = dims.size(); i-- > 0;) {
    const auto dim = static_cast<size_t>(order[i]);
    out.strides[dim] = out.storage;
    out.storage *= dims[dim];
    if (view == View::kPadded && i + 1 == dims.size()) out.storage += kPadding;
  }
  if (view == View::kOffset) {
    out.offset = 1;
    ++out.storage;
  }
  if (view == View::kReversed) {
    for (int64_t& stride : out.strides) stride = -stride;
    out.offset = std::max<int64_t>(out.storage - 1, 0);
  }
  return out;
}

// An odd number of elements, so that rows of usual lengths do not repeat each other.
constexpr size_t kPatternElements = 65537;

// Of one copy to a device, about: a GPU takes 10 us for the shortest.
constexpr size_t kCopyBytes = size_t{4} << 20;

}  // namespace

bool add(Operator op) {
  registry().push_back(std::move(op));
  return true;
}

std::vector<std::string> in_dtypes(const std::vector<std::string>& dtypes,
                                   const std::vector<std::string>& shapes) {
  std::vector<std::string> out;
  for (const std::string& shape : shapes) {
    for (const std::string& dtype : dtypes) {
      out.push_back(dtype);
      out.back().append("/").append(shape);
    }
  }
  return out;
}

// Once, whichever thread comes first: others read what it sorts.
const std::vector<Operator>& operators() {
  static const std::vector<Operator> sorted = [] {
    std::vector<Operator> out = registry();
    std::sort(out.begin(), out.end(),
              [](const Operator& a, const Operator& b) { return a.name < b.name; });
    return out;
  }();
  return sorted;
}

Job parse_job(const std::string& name) {
  for (const Operator& op : operators()) {
    if (name.rfind(op.name + "/", 0) != 0) continue;
    const std::string rest = name.substr(op.name.size() + 1);
    const size_t slash = rest.find('/');
    if (slash == std::string::npos) break;
    Job job{&op, rest.substr(0, slash), rest.substr(slash + 1)};
    try {
      op.check(parse_dtype(job.dtype), job.shape);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(name + ": " + error.what());
    }
    return job;
  }
  throw std::invalid_argument(name + ": no such problem; --list shows some");
}

void require(int status, const char* what) {
  if (status == 0) return;
  const char* message = aclGetRecentErrMsg();
  throw std::runtime_error(std::string(what) + " answered " + std::to_string(status) + ": " +
                           (message == nullptr ? "" : message));
}

Dims parse_dims(const std::string& shape, size_t rank) {
  Dims dims;
  const char* at = shape.data();
  const char* const end = at + shape.size();
  while (at != end) {
    int64_t dim = 0;
    const auto [next, error] = std::from_chars(at, end, dim);
    if (error != std::errc() || dim < 0 || (next != end && (*next != 'x' || next + 1 == end)))
      break;
    dims.push_back(dim);
    at = next == end ? end : next + 1;
  }
  if (at != end || dims.size() != rank) {
    throw std::invalid_argument("shape '" + shape + "': expected " + std::to_string(rank) +
                                " numbers joined by x");
  }
  // Of FP64, every second element, and some tensors of them.
  constexpr int64_t kMost = kTooMany / 64;
  if (saturating_product(dims) > kMost) {
    throw std::invalid_argument("shape '" + shape + "': expected a product of " +
                                std::to_string(kMost) + " at most");
  }
  return dims;
}

std::string take_variant(std::string& shape, const std::string& key) {
  const size_t slash = shape.find('/');
  if (slash == std::string::npos || shape.rfind(key, 0) != 0) return "";
  std::string variant = shape.substr(key.size(), slash - key.size());
  shape.erase(0, slash + 1);
  return variant;
}

aclDataType parse_dtype(const std::string& name) {
  for (const aclDataType dtype : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16}) {
    if (name == dtype_short_name(dtype)) return dtype;
  }
  throw std::invalid_argument("dtype '" + name + "': expected f32, f16 or bf16");
}

void use_view(const std::string& name) {
  std::string known;
  for (const auto& [each, view] : kViews) {
    if (name == each) {
      view_in_use = view;
      return;
    }
    known.append(known.empty() ? "" : ", ").append(each);
  }
  throw std::invalid_argument("view '" + name + "': expected one of " + known);
}

void use_no_data() { with_data = false; }

Tensor::Tensor(const Dims& dims, aclDataType dtype) : dims_(dims), dtype_(dtype) {
  const Layout layout = layout_of(dims_);
  storage_bytes_ = layout.storage * static_cast<int64_t>(dtype_size(dtype));
  if (storage_bytes_ != 0) {
    require(aclrtMalloc(&address_, static_cast<size_t>(storage_bytes_), ACL_MEM_MALLOC_HUGE_FIRST),
            "aclrtMalloc");
  }
  bytes_of_tensors += storage_bytes_;
  handle_ = aclCreateTensor(dims_.data(), dims_.size(), dtype_, layout.strides.data(),
                            layout.offset, ACL_FORMAT_ND, &layout.storage, 1, address_);
  if (!with_data) return;
  const bool floating = is_float_dtype(dtype) || dtype == ACL_DOUBLE;
  fill(floating ? test::normal_values(kPatternElements, static_cast<uint64_t>(storage_bytes_))
                : std::vector<double>{0.0});
}

Tensor::~Tensor() {
  bytes_of_tensors -= storage_bytes_;
  static_cast<void>(aclDestroyTensor(handle_));
  if (address_ != nullptr) static_cast<void>(aclrtFree(address_));
}

int64_t Tensor::numel() const {
  int64_t product = 1;
  for (const int64_t dim : dims_) product *= dim;
  return product;
}

int64_t Tensor::bytes_in_use() { return bytes_of_tensors; }

int64_t Tensor::bytes() const { return numel() * static_cast<int64_t>(dtype_size(dtype_)); }

void Tensor::fill(const std::vector<double>& values) {
  if (!with_data) return;
  const size_t size = dtype_size(dtype_);
  const auto total = static_cast<size_t>(storage_bytes_);
  const size_t period = values.size() * size;
  std::vector<uint8_t> pattern(period * std::max<size_t>(std::min(total, kCopyBytes) / period, 1));
  for (size_t i = 0; i < values.size(); ++i) {
    test::store_element(dtype_, values[i], &pattern[i * size]);
  }
  for (size_t i = period; i < pattern.size(); ++i) pattern[i] = pattern[i - period];
  for (size_t at = 0; at < total; at += pattern.size()) {
    const size_t count = std::min(pattern.size(), total - at);
    require(aclrtMemcpy(static_cast<uint8_t*>(address_) + at, count, pattern.data(), count,
                        ACL_MEMCPY_HOST_TO_DEVICE),
            "aclrtMemcpy");
  }
}

}  // namespace aclgrad::bench
