// SPDX-License-Identifier: Apache-2.0
// oneDNN on the CPU as a rival of the bench (orders: bench/rival.h): LayerNorm and softmax, both
// ways, each primitive made once. oneDNN's softmax knows neither mask nor scale, so a second
// primitive multiplies the gradient by a tensor that holds the scale or 0, in place; before the
// forward one, a tensor of 0 or -10000 is added to the scaled x. It takes the threads of the CPUs
// that the process may run on when its engine is made. Built by scripts/rivals.sh.
#include <sched.h>
#include <dnnl.hpp>

#include <bit>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace {

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;
using Dims = memory::dims;

struct Step {
  dnnl::primitive primitive;
  Arguments arguments;
};
using Steps = std::vector<Step>;

const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory::desc dense(const Dims& dims, memory::data_type dtype) {
  Dims strides(dims.size());
  memory::dim stride = 1;
  for (size_t i = dims.size(); i-- > 0; stride *= dims[i]) strides[i] = stride;
  return {dims, dtype, strides};
}

// The upper half of an FP32: near enough for a race.
struct BFloat16 {
  explicit BFloat16(float number)
      : bits(static_cast<uint16_t>(std::bit_cast<uint32_t>(number) >> 16)) {}
  uint16_t bits;
};

// Numbers between 0.25 and 2: bytes that are such numbers in all three dtypes.
memory filled(const memory::desc& desc) {
  memory out(desc, cpu());
  void* mapped = out.map_data();
  const size_t bytes = desc.get_size();
  if (desc.get_data_type() == memory::data_type::f32) {
    auto* at = static_cast<float*>(mapped);
    for (size_t i = 0; i < bytes / 4; ++i) at[i] = 0.25f + 0.5f * static_cast<float>(i % 97) / 97;
  } else {
    auto* at = static_cast<uint16_t*>(mapped);
    for (size_t i = 0; i < bytes / 2; ++i) at[i] = static_cast<uint16_t>(0x3E80 + i % 97);
  }
  out.unmap_data(mapped);
  return out;
}

// `masked` for every third element, as aclgrad's bench masks them, `other` for the rest.
memory masking(const memory::desc& desc, float masked, float other) {
  memory out(desc, cpu());
  void* mapped = out.map_data();
  const auto fill = [&](auto* at) {
    const size_t count = desc.get_size() / sizeof *at;
    for (size_t i = 0; i < count; ++i) {
      at[i] = static_cast<std::remove_pointer_t<decltype(at)>>(i % 3 == 2 ? masked : other);
    }
  };
  switch (desc.get_data_type()) {
    case memory::data_type::f32:
      fill(static_cast<float*>(mapped));
      break;
    case memory::data_type::f16:
      fill(static_cast<_Float16*>(mapped));
      break;
    default:
      fill(static_cast<BFloat16*>(mapped));
  }
  out.unmap_data(mapped);
  return out;
}

Dims sizes(const std::string& text) {
  Dims dims;
  std::istringstream in(text);
  for (std::string number; std::getline(in, number, 'x');) dims.push_back(std::stoll(number));
  return dims;
}

const auto kAffine = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;

Steps layer_norm(const Dims& dims, memory::data_type dtype, bool backward) {
  const auto data = dense(dims, dtype);
  const auto moments = dense({dims[0]}, memory::data_type::f32);
  const auto numbers = dense({dims[1]}, memory::data_type::f32);
  const dnnl::layer_normalization_forward::primitive_desc forward(
      cpu(), dnnl::prop_kind::forward_training, data, data, moments, 1e-5f, kAffine);
  Arguments arguments{{DNNL_ARG_SRC, filled(data)},
                      {DNNL_ARG_MEAN, filled(moments)},
                      {DNNL_ARG_VARIANCE, filled(moments)},
                      {DNNL_ARG_SCALE, filled(numbers)}};
  if (!backward) {
    arguments[DNNL_ARG_SHIFT] = filled(numbers);
    arguments[DNNL_ARG_DST] = filled(data);
    return {{dnnl::layer_normalization_forward(forward), arguments}};
  }
  const dnnl::layer_normalization_backward::primitive_desc gradient(
      cpu(), dnnl::prop_kind::backward, data, data, data, moments, 1e-5f, kAffine, forward);
  arguments[DNNL_ARG_DIFF_DST] = filled(data);
  arguments[DNNL_ARG_DIFF_SRC] = filled(data);
  arguments[DNNL_ARG_DIFF_SCALE] = filled(numbers);
  arguments[DNNL_ARG_DIFF_SHIFT] = filled(numbers);
  return {{dnnl::layer_normalization_backward(gradient), arguments}};
}

Step binary(dnnl::algorithm algorithm, const memory& in_place, const memory& other) {
  const auto desc = in_place.get_desc();
  const dnnl::binary::primitive_desc primitive(cpu(), algorithm, desc, other.get_desc(), desc);
  return {dnnl::binary(primitive),
          {{DNNL_ARG_SRC_0, in_place}, {DNNL_ARG_SRC_1, other}, {DNNL_ARG_DST, in_place}}};
}

Steps softmax(const Dims& dims, memory::data_type dtype, bool backward) {
  const auto data = dense(dims, dtype);
  constexpr float kScale = 0.125f;
  const memory mask = masking(dense({dims[0], 1, dims[2], dims[3]}, dtype),
                              backward ? 0.0f : -10000.0f, backward ? kScale : 0.0f);
  const auto kind = dnnl::algorithm::softmax_accurate;
  const dnnl::softmax_forward::primitive_desc forward(cpu(), dnnl::prop_kind::forward_training,
                                                      kind, data, data, 3);
  if (backward) {
    const dnnl::softmax_backward::primitive_desc gradient(cpu(), kind, data, data, data, 3,
                                                          forward);
    const memory dx = filled(data);
    return {{dnnl::softmax_backward(gradient),
             {{DNNL_ARG_DST, filled(data)},
              {DNNL_ARG_DIFF_DST, filled(data)},
              {DNNL_ARG_DIFF_SRC, dx}}},
            binary(dnnl::algorithm::binary_mul, dx, mask)};
  }
  dnnl::primitive_attr scaled;
  scaled.set_scales_mask(DNNL_ARG_SRC_0, 0);
  const dnnl::binary::primitive_desc shifted(cpu(), dnnl::algorithm::binary_add, data,
                                             mask.get_desc(), data, scaled);
  const memory x = filled(data);
  const memory y = filled(data);
  const memory scale = filled(dense({1}, memory::data_type::f32));
  return {{dnnl::binary(shifted),
           {{DNNL_ARG_SRC_0, x},
            {DNNL_ARG_SRC_1, mask},
            {DNNL_ARG_DST, y},
            {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC_0, scale}}},
          {dnnl::softmax_forward(forward), {{DNNL_ARG_SRC, y}, {DNNL_ARG_DST, y}}}};
}

Steps make(const std::string& name) {
  const size_t first = name.find('/');
  const size_t second = name.find('/', first + 1);
  const std::string op = name.substr(0, first);
  const std::string dtype_name = name.substr(first + 1, second - first - 1);
  const auto dtype = dtype_name == "f32"   ? memory::data_type::f32
                     : dtype_name == "f16" ? memory::data_type::f16
                                           : memory::data_type::bf16;
  const std::string shape = name.substr(second + 1);
  if (op == "layer_norm") return layer_norm(sizes(shape), dtype, false);
  if (op == "layer_norm_backward") return layer_norm(sizes(shape), dtype, true);
  if (op == "scaled_masked_softmax") return softmax(sizes(shape), dtype, false);
  if (op == "scaled_masked_softmax_backward") return softmax(sizes(shape), dtype, true);
  throw std::runtime_error("oneDNN has no " + op);
}

class Copies {
 public:
  Copies(const std::string& name, int count) {
    for (int i = 0; i < count; ++i) copies_.push_back(make(name));
    run();
  }
  void run() {
    for (Step& step : copies_[next_]) step.primitive.execute(stream_, step.arguments);
    stream_.wait();
    next_ = (next_ + 1) % copies_.size();
  }

 private:
  dnnl::stream stream_{cpu()};
  std::vector<Steps> copies_;
  size_t next_ = 0;
};

// The process may run on `count` of its CPUs from now on, or on all where it has not so many.
void keep_cpus(int count) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    if (count == 0) CPU_CLR(cpu, &set);
    count -= count > 0;
  }
  static_cast<void>(sched_setaffinity(0, sizeof set, &set));
}

}  // namespace

int main() {
  std::unique_ptr<Copies> problem;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string order, name;
    int count = 0;
    words >> order;
    if (order == "threads" && words >> count) {
      keep_cpus(count);
      std::cout << "ok" << std::endl;
    } else if (order == "make" && words >> name >> count) {
      problem.reset();
      try {
        problem = std::make_unique<Copies>(name, count);
        std::cout << "ok" << std::endl;
      } catch (const std::exception& error) {
        std::cout << "no " << error.what() << std::endl;
      }
    } else if (order == "run" && words >> count && problem != nullptr) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < count; ++i) problem->run();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      std::cout << taken.count() / count << std::endl;
    } else {
      std::cout << "expected threads, make or run" << std::endl;
    }
  }
}
