// SPDX-License-Identifier: Apache-2.0
// The bits of GroupedBiasAddGrad: uneven groups, equal ones, rows with gaps and without.
#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "operators.h"
#include "ops/grouped_bias_add_grad/cases.h"

namespace aclgrad::test {
namespace {

void print_case(std::string name, Tensor& dy, const Tensor* ends, int64_t groups) {
  dy.fill_normal(1, 0.3, 1.0);
  Tensor out({groups, dy.dims().back()}, dy.dtype());
  name = std::string("grouped_bias_add_grad/") + dtype_short_name(dy.dtype()) + "/" + name;
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnGroupedBiasAddGradGetWorkspaceSize(
            dy.handle(), ends == nullptr ? nullptr : ends->handle(), out.handle(), size, executor);
      },
      aclnnGroupedBiasAddGrad);
  print_digest(name, outcome, out);
}

std::string joined(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

}  // namespace

void print_grouped_bias_add_grad() {
  using namespace grouped_bias_add_grad;
  for (const aclDataType dtype : kFloats) {
    for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kRowPadded}) {
      for (const Case& each : test_cases()) {
        std::vector<double> ends;
        double end = 0;
        for (const int64_t size : each.sizes) ends.push_back(end += static_cast<double>(size));
        if (end == 0) continue;
        const auto groups = static_cast<int64_t>(ends.size());
        Tensor end_tensor({groups}, ACL_INT64);
        end_tensor.fill(ends);
        Tensor dy({static_cast<int64_t>(end), each.cols}, dtype, arrangement);
        print_case(joined(each.sizes) + " x " + std::to_string(each.cols) + " " +
                       arrangement_name(arrangement),
                   dy, &end_tensor, groups);
      }
      for (const std::vector<int64_t>& shape : equal_cases()) {
        Tensor dy({shape[0], shape[1], shape[2]}, dtype, arrangement);
        print_case(joined(shape) + " " + arrangement_name(arrangement), dy, nullptr, shape[0]);
      }
      for (const int64_t rows : narrow_rows()) {
        for (const int64_t cols : {1, 2, 3, 5, 8, 9, 16}) {
          const std::vector<int64_t> shape = {3, rows, cols};
          Tensor dy(shape, dtype, arrangement);
          print_case(joined(shape) + " " + arrangement_name(arrangement), dy, nullptr, shape[0]);
        }
      }
    }
  }
}

}  // namespace aclgrad::test
