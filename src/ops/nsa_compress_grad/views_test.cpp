// SPDX-License-Identifier: Apache-2.0
// NsaCompressGrad of tensors that lie in any way and in place: the bits of contiguous ones, and no
// copy.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/nsa_compress_grad/test_problem.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

TEST(NsaCompressGrad, EveryStridedViewGivesTheSameBits) {
  for (const Case& shape : {Case{131, 3, 48, 32, 16, {67, 130}}, Case{200, 2, 16, 160, 16, {}}}) {
    for (const aclDataType dtype : kFloats) {
      Problem plain(shape, dtype);
      plain.run_and_check();
      for (const Arrangement in : kInputArrangements) {
        for (const Arrangement out : kOutputArrangements) {
          if (in != out && out != Arrangement::kContiguous && in != Arrangement::kContiguous) {
            continue;
          }
          SCOPED_TRACE(std::string(arrangement_name(in)) + " to " + arrangement_name(out));
          const Problem view(shape, dtype, {in, in, in, out, out});
          view.run_and_check();
          if (in != Arrangement::kBroadcast) view.expect_bits_of(plain);
        }
      }
    }
  }
}

TEST(NsaCompressGrad, BroadcastHeadsAndWeights) {
  const Case shape{150, 4, 32, 48, 16, {}};
  Problem problem(shape, ACL_BF16);
  const auto one_head = [&](Tensor& tensor, size_t dim) {
    Tensor repeated = Tensor::broadcast(tensor.dims(), ACL_BF16, {dim});
    repeated.fill_normal(9);
    return repeated;
  };
  const Tensor dy = one_head(problem.dy, 1), x = one_head(problem.x, 1), w = one_head(problem.w, 0);
  Problem dense(shape, ACL_BF16);
  dense.dy.fill(dy.values());
  dense.x.fill(x.values());
  dense.w.fill(w.values());
  dense.run_and_check();
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnNsaCompressGradGetWorkspaceSize(dy.handle(), x.handle(), w.handle(), nullptr,
                                                    48, 16, 0, nullptr, problem.dx.handle(),
                                                    problem.dw.handle(), size, executor);
      },
      aclnnNsaCompressGrad);
  ASSERT_TRUE(outcome.ok()) << outcome;
  problem.expect_bits_of(dense);
}

// Workspace is a function of the shape; strided tokens and heads need no more of it: nothing is
// packed.
TEST(NsaCompressGrad, RowsAreUsedInPlace) {
  const Case shape{500, 3, 64, 32, 16, {}};
  const uint64_t contiguous = Problem(shape, ACL_BF16).run_it().workspace_size;
  for (const Arrangement in : {Arrangement::kOffset, Arrangement::kRowPadded,
                               Arrangement::kReversedRows, Arrangement::kBroadcast}) {
    const Arrangement out = in == Arrangement::kBroadcast ? Arrangement::kRowPadded : in;
    const Outcome outcome = Problem(shape, ACL_BF16, {in, in, in, out, out}).run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    EXPECT_EQ(outcome.workspace_size, contiguous) << arrangement_name(in);
  }
}

TEST(NsaCompressGrad, InPlaceGivesTheSameBits) {
  for (const Case& shape : {Case{131, 3, 48, 32, 16, {67, 130}}, Case{300, 2, 16, 64, 16, {}},
                            Case{300, 2, 272, 64, 16, {}}, Case{700, 1, 32, 400, 16, {}},
                            Case{2400, 1, 128, 32, 16, {1000, 2300}}}) {
    for (const Arrangement view :
         {Arrangement::kContiguous, Arrangement::kRowPadded, Arrangement::kTransposed}) {
      Problem apart(shape, ACL_FLOAT16);
      ASSERT_TRUE(apart.run_it().ok());
      Problem same(shape, ACL_FLOAT16, {view, view, view, view, view});
      const std::vector<uint8_t> input = same.x.bits();
      const auto run_again = [&](const auto&) {
        same.x.fill_bits(input);
        const Outcome outcome = same.run_on(same.x, same.x);
        ASSERT_TRUE(outcome.ok()) << outcome;
        expect_same_bits("inputGradOut", same.x.bits(), apart.dx.bits());
        expect_same_bits("weightGradOut", same.dw.bits(), apart.dw.bits());
        EXPECT_TRUE(same.x.untouched_outside());
      };
      for_each_target(run_again);
      if (shape.tokens > 1000) for_each_thread_count(run_again);  // has several slabs
    }
  }
}

}  // namespace
}  // namespace aclgrad::test
