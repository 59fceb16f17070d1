// SPDX-License-Identifier: Apache-2.0
// A small operator on Launch, for tests of what all operators have in common:
//   out = 2 * x + y          (float; y absent: out = 2 * x), and copyOut = x where it is given.
// Parameters in order: x, yOptional, biasOptional (only checked), out, copyOutOptional.
#ifndef ACLGRAD_TESTS_TENSOR_SCALE_ADD_H_
#define ACLGRAD_TESTS_TENSOR_SCALE_ADD_H_

#include <array>
#include <cstring>
#include <string>

#include "kernels/cpu/strided_copy.h"
#include "support/run.h"
#include "tensor/check.h"
#include "tensor/launch.h"
#include "tensor/scale_add_task.h"

namespace aclgrad::test {

inline constexpr const char* kScaleAdd = "aclnnScaleAdd";

struct ScaleAdd {
  const aclTensor* x = nullptr;
  const aclTensor* y = nullptr;
  const aclTensor* bias = nullptr;
  const aclTensor* out = nullptr;
  const aclTensor* copy_out = nullptr;
  Layout layout = kAnyStrides;  // of all tensors
  bool in_place = false;        // out may be x or y
  int64_t book = 0;             // bytes of a region that the call fills with 0x77
  bool report = false;          // a data error at every run
  const char* op = kScaleAdd;
  std::array<bool, 5>* packed = nullptr;  // receives what is packed: x, y, -, out, copy_out
};

// The float at an index of a view, by the number of the element in row-major order.
inline float* element(const View& view, void* base, int64_t number) {
  int64_t at = 0;
  for (int i = view.rank - 1; i >= 0; --i) {
    const auto dim = static_cast<size_t>(i);
    at += number % view.dims[dim] * view.strides[dim];
    number /= view.dims[dim];
  }
  return static_cast<float*>(base) + at;
}

// Elements need no alignment.
inline float load_float(const void* from) {
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Has no kernel for a GPU.
struct ScaleAddOnCpu {
  std::array<int, 4> operands;  // x, y, out, copy_out
  std::array<View, 4> views;
  bool have_y, have_copy, report;
  int region;
  int64_t book;

  void operator()(const Run& run) const {
    const auto at = [&](size_t i, int64_t number) {
      return element(views[i], run.address(operands[i]), number);
    };
    if (book > 0) std::memset(run.region(region), 0x77, static_cast<size_t>(book));
    const int64_t count = views[0].numel();
    for (int64_t i = 0; i < count; ++i) {
      const float from = load_float(at(0, i));
      const float result = 2.0f * from + (have_y ? load_float(at(1, i)) : 0.0f);
      std::memcpy(at(2, i), &result, sizeof result);
      if (have_copy) std::memcpy(at(3, i), &from, sizeof from);
    }
    if (report) run.errors().report("aclnnScaleAdd: as ordered");
  }
};

struct ScaleAddCall : ScaleAddOnCpu {
  CudaAnswer on_cuda(const Run& run) const {
    ScaleAddTask task{};
    for (size_t i = 0; i < 4; ++i) {
      task.views[i] = views[i];
      const bool given = (i != 1 || have_y) && (i != 3 || have_copy);
      task.addresses[i] = given ? run.get<float>(operands[i]) : nullptr;
    }
    task.count = views[0].numel();
    task.region = book > 0 ? static_cast<unsigned char*>(run.region(region)) : nullptr;
    task.book = book;
    task.record = report ? run.record() : nullptr;
    return scale_add_on_cuda(task, run.queue());
  }
  void explain(const DeviceRecord&, DataErrors& errors) const {
    errors.report("aclnnScaleAdd: as ordered");
  }
};

template <class Call>
Status fill_launch(const ScaleAdd& in, const std::array<Operand, 5>& operands, Launch& launch) {
  const int x = launch.input(operands[0], in.layout);
  const int y = launch.input(operands[1], in.layout);
  launch.unused(operands[2]);
  const int out = launch.output(operands[3], in.layout);
  const int copy_out = launch.output(operands[4], in.layout);
  if (in.in_place) {
    launch.allow_in_place(out, x);
    launch.allow_in_place(out, y);
  }
  const int region = launch.book(in.book);
  if (in.packed != nullptr) {
    *in.packed = {launch.packed(x), launch.packed(y), false, launch.packed(out),
                  launch.packed(copy_out)};
  }
  launch.describe("scale_add/f32/" + std::to_string(operands[0].numel()), 1234);
  if (operands[0].numel() == 0) return kOk;
  Call& call = launch.make<Call>();
  call.operands = {x, y, out, copy_out};
  for (size_t i = 0; i < 4; ++i) call.views[i] = launch.view(call.operands[i]);
  call.have_y = operands[1].given();
  call.have_copy = operands[4].given();
  call.region = region;
  call.book = in.book;
  call.report = in.report;
  launch.run(call);
  return kOk;
}

template <class Call = ScaleAddCall>
aclnnStatus plan(const ScaleAdd& in, uint64_t* workspace_size, aclOpExecutor** executor) {
  return plan_phase(in.op, workspace_size, executor, [&](Launch& launch) -> Status {
    if (Status s = check::not_null(in.op, "x", in.x)) return s;
    if (Status s = check::not_null(in.op, "out", in.out)) return s;
    if (Status s = check_outputs(in.op, workspace_size, executor)) return s;
    const std::array<const char*, 5> names = {"x", "yOptional", "biasOptional", "out",
                                              "copyOutOptional"};
    const std::array<const aclTensor*, 5> handles = {in.x, in.y, in.bias, in.out, in.copy_out};
    std::array<Operand, 5> operands;
    for (size_t i = 0; i < 5; ++i) {
      if (Status s = read_tensor(in.op, names[i], handles[i], operands[i])) return s;
    }
    for (const Operand& operand : operands) {
      if (Status s = check::dtype(in.op, operand, {ACL_FLOAT})) return s;
    }
    for (const Operand& operand : operands) {
      if (Status s = check::format(in.op, operand)) return s;
    }
    for (const Operand& operand : operands) {
      if (Status s = check::rank(in.op, operand, 0, 8)) return s;
    }
    for (const size_t i : {size_t{1}, size_t{3}, size_t{4}}) {
      if (Status s = check::same_shape(in.op, operands[i], operands[0])) return s;
    }
    for (const Operand& operand : operands) {
      if (Status s = check::sizes(in.op, operand)) return s;
    }
    return fill_launch<Call>(in, operands, launch);
  });
}

inline aclnnStatus execute(void* workspace, uint64_t workspace_size, aclOpExecutor* executor,
                           aclrtStream on) {
  return run_phase(kScaleAdd, workspace, workspace_size, executor, on);
}

template <class Call = ScaleAddCall>
Outcome run_scale_add(const ScaleAdd& in) {
  return run(
      [&](uint64_t* size, aclOpExecutor** executor) { return plan<Call>(in, size, executor); },
      execute);
}

// Phase one that a test relies on.
struct Planned {
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
};
inline Planned planned(const ScaleAdd& in) {
  Planned out;
  require(plan(in, &out.size, &out.executor), "phase one");
  return out;
}

inline std::vector<double> scaled(const std::vector<double>& x, const std::vector<double>& y) {
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = 2.0 * x[i] + (y.empty() ? 0.0 : y[i]);
  return out;
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_TENSOR_SCALE_ADD_H_
