// SPDX-License-Identifier: Apache-2.0
// The bits of NsaCompress: every number of chains that a window can have.
#include "aclnnop/aclnn_nsa_compress.h"
#include "operators.h"
#include "ops/nsa_compress/cases.h"

namespace aclgrad::test {

void print_nsa_compress() {
  auto cases = nsa_compress::test_cases();
  // More sequences than travel with a launch, two of three with a window.
  auto& many = cases.emplace_back(cases.front());
  many = {5000, 2, 16, 16, 16, {}};
  for (int64_t i = 0; i < 300; ++i) many.ends.push_back(16 * i + (i % 3 == 1 ? 5 : 0));
  for (const auto& each : cases) {
    int64_t windows = 0, begin = 0;
    for (const int64_t end : each.ends) {
      if (end - begin >= each.window) windows += (end - begin - each.window) / each.step + 1;
      begin = end;
    }
    if (windows == 0) continue;
    const IntArray ends(each.ends);
    for (const aclDataType dtype : {ACL_FLOAT16, ACL_BF16}) {
      for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kOffset}) {
        Tensor x({each.tokens, each.heads, each.width}, dtype, arrangement);
        Tensor w({each.window, each.heads}, dtype), y({windows, each.heads, each.width}, dtype);
        x.fill_normal(1);
        w.fill_normal(2);
        char layout[] = "TND";
        const Outcome outcome = run(
            [&](uint64_t* size, aclOpExecutor** executor) {
              return aclnnNsaCompressGetWorkspaceSize(x.handle(), w.handle(), ends.handle(), layout,
                                                      each.window, each.step, 0, y.handle(), size,
                                                      executor);
            },
            aclnnNsaCompress);
        print_digest(std::string("nsa_compress/") + dtype_short_name(dtype) + "/" +
                         std::to_string(each.tokens) + "x" + std::to_string(each.heads) + "x" +
                         std::to_string(each.width) + "-l" + std::to_string(each.window) + "-d" +
                         std::to_string(each.step) + " " + arrangement_name(arrangement),
                     outcome, y);
      }
    }
  }
}

}  // namespace aclgrad::test
