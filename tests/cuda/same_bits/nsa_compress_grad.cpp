// SPDX-License-Identifier: Apache-2.0
// The bits of NsaCompressGrad: every number of windows a token, heads that are aligned and others.
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "operators.h"
#include "ops/nsa_compress_grad/cases.h"

namespace aclgrad::test {
namespace {

using nsa_compress_grad::Case;

int64_t windows_of(const Case& each) {
  if (each.ends.empty()) return (each.tokens - each.window) / each.step + 1;
  int64_t windows = 0, begin = 0;
  for (const int64_t end : each.ends) {
    if (end - begin >= each.window) windows += (end - begin - each.window) / each.step + 1;
    begin = end;
  }
  return windows;
}

void print_case(const Case& each, aclDataType dtype, Arrangement arrangement) {
  const int64_t windows = windows_of(each);
  if (each.tokens < each.window || windows == 0) return;
  const Dims tokens = {each.tokens, each.heads, each.width};
  Tensor x(tokens, dtype, arrangement), dx(tokens, dtype, arrangement);
  Tensor dy({windows, each.heads, each.width}, dtype, arrangement);
  Tensor w({each.window, each.heads}, dtype), dw({each.window, each.heads}, dtype);
  dy.fill_normal(1);
  x.fill_normal(2);
  w.fill_normal(3);
  const IntArray ends(each.ends);
  char layout[] = "TND";
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnNsaCompressGradGetWorkspaceSize(
            dy.handle(), x.handle(), w.handle(), each.ends.empty() ? nullptr : ends.handle(),
            each.window, each.step, 0, layout, dx.handle(), dw.handle(), size, executor);
      },
      aclnnNsaCompressGrad);
  const std::string name = std::string("nsa_compress_grad/") + dtype_short_name(dtype) + "/" +
                           std::to_string(each.tokens) + "x" + std::to_string(each.heads) + "x" +
                           std::to_string(each.width) + "-l" + std::to_string(each.window) + "-d" +
                           std::to_string(each.step) + " " + arrangement_name(arrangement);
  print_digest(name + " dx", outcome, dx);
  print_digest(name + " dw", outcome, dw);
}

}  // namespace

void print_nsa_compress_grad() {
  for (const Case& each : nsa_compress_grad::test_cases()) {
    for (const aclDataType dtype : {ACL_FLOAT16, ACL_BF16}) {
      for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kOffset}) {
        print_case(each, dtype, arrangement);
      }
    }
  }
  // A window whose weights a block of a GPU does not keep.
  print_case({3000, 2, 32, 1040, 528, {}}, ACL_BF16, Arrangement::kContiguous);
}

}  // namespace aclgrad::test
