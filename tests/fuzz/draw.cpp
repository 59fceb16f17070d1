// SPDX-License-Identifier: Apache-2.0
#include "fuzz/draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace aclgrad::fuzz {
namespace {

Dims draw_strides(Random& random, const Dims& dims) {
  std::vector<size_t> order(dims.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (random.chance(0.25)) {
    for (size_t i = order.size(); i > 1; --i) {
      const int64_t other = random.integer(0, static_cast<int64_t>(i) - 1);
      std::swap(order[i - 1], order[static_cast<size_t>(other)]);
    }
  }
  const int64_t step = random.chance(0.2) ? random.integer(2, 3) : 1;
  const int64_t gap = random.chance(0.3) ? random.integer(1, 9) : 0;
  Dims strides = test::strides_in_order(dims, order, step, gap);
  if (random.chance(0.2)) {
    for (int64_t& stride : strides) stride = random.chance(0.5) ? -stride : stride;
  }
  return strides;
}

int64_t draw_lead(Random& random) { return random.chance(0.4) ? random.integer(1, 40) : 0; }

// Numbers of every size from FP32's least subnormal to 2^20 (2^-1 unless `large`), a run of them of
// one size each: whole rows are tiny, and single elements are.
std::vector<double> draw_every_size(Random& random, size_t count, bool large) {
  std::vector<double> values(count);
  double scale = 0.0;
  for (size_t i = 0; i < count; ++i) {
    if (i == 0 || random.chance(0.03)) {
      scale = std::ldexp(1.0, static_cast<int>(random.integer(-149, large ? 20 : -1)));
    }
    values[i] = random.normal() * scale;
  }
  return values;
}

// The numbers without what is not finite.
std::vector<double> draw_numbers(Random& random, size_t count, bool large, bool tiny) {
  std::vector<double> values(count);
  const int64_t kind = random.integer(0, 9);
  if (kind == 0) {  // constant, also the tenth that no binary format holds
    std::fill(values.begin(), values.end(), random.chance(0.5) ? 0.1 : random.normal());
    return values;
  }
  if (kind == 1) {
    for (double& value : values) value = static_cast<double>(random.integer(-3, 3));
    return values;
  }
  if (kind == 6 && tiny) return draw_every_size(random, count, large);
  double scale = 1.0;
  double mean = 0.0;
  if (kind == 2 && tiny) scale = 0x1p-20;   // subnormal in FP16
  if (kind == 3 && tiny) scale = 0x1p-136;  // subnormal in FP32 and BF16
  if (kind == 4 && large) scale = 0x1p10;
  if (kind == 5) mean = 30.0;
  for (double& value : values) value = random.normal(mean, scale);
  return values;
}

}  // namespace

TensorPointer draw_output(Random& random, const Dims& dims, aclDataType dtype) {
  Dims strides = draw_strides(random, dims);
  return std::make_shared<Tensor>(dims, dtype, std::move(strides), draw_lead(random));
}

TensorPointer draw_input(Random& random, const Dims& dims, aclDataType dtype) {
  Dims strides = draw_strides(random, dims);
  if (random.chance(0.15)) {
    for (int64_t& stride : strides) stride = random.chance(0.5) ? 0 : stride;
  }
  return std::make_shared<Tensor>(dims, dtype, std::move(strides), draw_lead(random));
}

void fill_finite(Random& random, Tensor& tensor, bool tiny) {
  tensor.fill(draw_numbers(random, static_cast<size_t>(tensor.numel()), false, tiny));
}

bool repeats(const Tensor& tensor) {
  for (size_t i = 0; i < tensor.dims().size(); ++i) {
    if (tensor.dims()[i] > 1 && tensor.strides()[i] == 0) return true;
  }
  return false;
}

bool all_finite(const Tensor& tensor) {
  const std::vector<double> values = tensor.values();
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

void fill_floats(Random& random, Tensor& tensor) {
  std::vector<double> values =
      draw_numbers(random, static_cast<size_t>(tensor.numel()), true, true);
  if (!values.empty() && random.chance(0.08)) {
    using Limits = std::numeric_limits<double>;
    const double odd[] = {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -0.0};
    for (int64_t i = random.integer(1, 4); i > 0; --i) {
      const int64_t place = random.integer(0, static_cast<int64_t>(values.size()) - 1);
      values[static_cast<size_t>(place)] = random.pick(odd);
    }
  }
  tensor.fill(values);
}

int64_t draw_length(Random& random, int64_t most) {
  const int64_t kind = random.integer(0, 19);
  int64_t length = random.integer(1, 40);
  if (kind == 0) length = 0;
  if (kind == 1) length = 1;
  if (kind >= 2 && kind < 6) {
    length = 16 * random.integer(1, 8);
    length += random.integer(-1, 1);
  }
  if (kind == 6) length = random.integer(1, most);
  return std::min(length, most);
}

Dims draw_dims(Random& random, size_t rank, int64_t most) {
  Dims dims;
  int64_t left = most;
  for (size_t i = 0; i < rank; ++i) {
    dims.push_back(draw_length(random, std::max<int64_t>(left, 1)));
    left /= std::max<int64_t>(dims.back(), 1);
  }
  if (random.chance(0.5)) std::swap(dims.front(), dims.back());
  return dims;
}

Dims draw_factors(Random& random, int64_t product) {
  Dims dims;
  int64_t left = product;
  while (left > 1 && dims.size() < 3 && random.chance(0.5)) {
    const int64_t factor = random.integer(2, 7);
    if (left % factor != 0) continue;
    dims.push_back(factor);
    left /= factor;
  }
  dims.push_back(left);
  while (dims.size() < 8 && random.chance(0.15)) {
    dims.insert(dims.begin() + random.integer(0, static_cast<int64_t>(dims.size())), 1);
  }
  return dims;
}

std::string text_of(const Tensor& tensor) {
  const auto join = [](const Dims& numbers) {
    std::string text;
    for (const int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
    return text;
  };
  return std::string(dtype_short_name(tensor.dtype())) + "[" + join(tensor.dims()) + "]/" +
         join(tensor.strides());
}

}  // namespace aclgrad::fuzz
