// SPDX-License-Identifier: Apache-2.0
// Phase one once more with the same arguments, which takes the plan it made before, and with
// arguments that only look the same: a tensor described anew, moved or destroyed, memory that was
// freed, an array that is gone.
#include <array>
#include <memory>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "aclnnop/aclnn_layer_norm.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "protocol/planned.h"

namespace aclgrad::test {
namespace {

class Again : public EachOperator {};

void run_all(const Planned& planned, const std::vector<uint8_t>& bits) {
  planned.problem.poison_outputs();
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS) << take_message();
  EXPECT_TRUE(planned.problem.result() == bits) << "other results";
  EXPECT_TRUE(planned.problem.guards_intact());
  EXPECT_TRUE(planned.workspace->guards_intact());
}

aclnnStatus describe(const Tensor& tensor, aclFormat format) {
  return aclInitTensor(tensor.handle(), tensor.dims().data(), tensor.dims().size(), tensor.dtype(),
                       tensor.strides().data(), tensor.offset(), format, nullptr, 0,
                       tensor.address());
}

TEST_P(Again, SameResultEveryTime) {
  for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kInnerStrided}) {
    Planned planned(row(), arrangement);
    const uint64_t size = planned.size;
    for (int turn = 0; turn < 4; ++turn) {
      run_all(planned, expected());
      planned.replan();
      EXPECT_EQ(planned.size, size);
    }
    // Of two executors for the same arguments each is its own.
    aclOpExecutor* const first = planned.executor;
    planned.replan();
    EXPECT_NE(planned.executor, first);
    EXPECT_EQ(aclDestroyAclOpExecutor(first), kOk);
    run_all(planned, expected());
    expect_consumed(planned);
  }
}

TEST_P(Again, ManyAtOnce) {
  Planned planned(row());
  run_all(planned, expected());
  std::array<aclOpExecutor*, 100> executors;
  for (aclOpExecutor*& executor : executors) {
    ASSERT_EQ(planned.problem.plan(&planned.size, &executor), kOk) << take_message();
  }
  planned.problem.poison_outputs();
  for (aclOpExecutor* const executor : executors) {
    planned.executor = executor;
    ASSERT_EQ(planned.execute(), kOk) << take_message();
  }
  expect_done(planned, expected());
}

TEST_P(Again, DescribedAnew) {
  Planned planned(row());
  run_all(planned, expected());
  for (size_t i = 0; i < planned.problem.tensors.size(); ++i) {
    const Tensor& tensor = *planned.problem.tensors[i];
    planned.replan();
    EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
    ASSERT_EQ(describe(tensor, ACL_FORMAT_FRACTAL_NZ), kOk) << take_message();
    take_message();
    EXPECT_EQ(planned.problem.plan(&planned.size, &planned.executor), kParamInvalid) << i;
    expect_message(take_message(), {planned.problem.function, "format"});
    ASSERT_EQ(describe(tensor, ACL_FORMAT_ND), kOk) << take_message();
    planned.replan();
    run_all(planned, expected());
  }
}

TEST_P(Again, Destroyed) {
  for (size_t i = 0; i < make_small_problem(row()).tensors.size(); ++i) {
    Planned planned(row());
    run_all(planned, expected());
    const Handles handles = planned.problem.handles();
    planned.problem.tensors[i]->destroy_handle();
    take_message();
    EXPECT_EQ(planned.problem.plan_with(handles, &planned.size, &planned.executor), kParamInvalid);
    expect_message(take_message(),
                   {planned.problem.function, planned.problem.parameters[i].name, "destroyed"});
  }
}

TEST_P(Again, NullOutPointers) {
  Planned planned(row());
  run_all(planned, expected());
  EXPECT_EQ(planned.problem.plan(nullptr, &planned.executor), kParamNullptr);
  expect_message(take_message(), {planned.problem.function, "workspaceSize"});
  EXPECT_EQ(planned.problem.plan(&planned.size, nullptr), kParamNullptr);
  expect_message(take_message(), {planned.problem.function, "executor"});
}

// The tensors of a second problem take the places of the first one's, and go.
TEST_P(Again, OtherAddresses) {
  Planned planned(row());
  run_all(planned, expected());
  {
    const SmallProblem other = make_small_problem(row(), Arrangement::kContiguous, 7);
    for (size_t i = 0; i < other.tensors.size(); ++i) {
      ASSERT_EQ(
          aclSetRawTensorAddr(planned.problem.tensors[i]->handle(), other.tensors[i]->address()),
          kOk);
    }
    planned.replan();
    ASSERT_EQ(planned.execute(), kOk) << take_message();
    ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS);
    EXPECT_TRUE(other.result() == expected(7));
    EXPECT_TRUE(other.guards_intact());
    planned.replan();
    EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
  }
  take_message();
  EXPECT_EQ(planned.problem.plan(&planned.size, &planned.executor), kParamInvalid);
  expect_message(take_message(), {planned.problem.function, "freed"});
  for (const auto& tensor : planned.problem.tensors) {
    ASSERT_EQ(aclSetRawTensorAddr(tensor->handle(), tensor->address()), kOk);
  }
  planned.replan();
  run_all(planned, expected());
}

TEST_P(Again, AllocationsChange) {
  Planned planned(row());
  for (int turn = 0; turn < 4; ++turn) {
    run_all(planned, expected());
    const DeviceMemory other(static_cast<size_t>(1000 * turn + 64));
    planned.replan();
  }
  run_all(planned, expected());
}

// Two tensors moved into each other.
TEST_P(Again, Overlap) {
  Planned planned(row());
  run_all(planned, expected());
  const size_t out = planned.problem.first_output();
  const Tensor& output = *planned.problem.tensors[out];
  const Tensor& input = *planned.problem.tensors[0];
  const size_t shift = output.element_size();
  // Larger ones reach beyond the input's allocation, which is refused first.
  if (output.storage_bytes() + shift > input.storage_bytes()) return;
  void* const inside = static_cast<uint8_t*>(input.address()) + shift;
  ASSERT_EQ(aclSetRawTensorAddr(output.handle(), inside), kOk);
  take_message();
  EXPECT_EQ(planned.problem.plan(&planned.size, &planned.executor), kParamInvalid);
  expect_message(take_message(), {planned.problem.function, "overlaps"});
  ASSERT_EQ(aclSetRawTensorAddr(output.handle(), output.address()), kOk);
  planned.replan();
  run_all(planned, expected());
}

// The arguments that are no tensors count too: the same tensors with another number, run once
// before, give what fresh ones give.
template <class Tensors, class Number, class Plan>
void expect_numbers_count(Number first, Number second, const Plan& plan, Execute execute) {
  const auto result = [&](Tensors& t, Number number) {
    t.out.poison();
    const Outcome outcome = run(
        [&](uint64_t* size, aclOpExecutor** executor) { return plan(t, number, size, executor); },
        execute);
    EXPECT_TRUE(outcome.ok()) << outcome;
    return t.out.bits();
  };
  Tensors tensors, fresh;
  const std::vector<uint8_t> one = result(tensors, first);
  const std::vector<uint8_t> other = result(tensors, second);
  EXPECT_FALSE(one == other);
  EXPECT_TRUE(result(fresh, second) == other);
  EXPECT_TRUE(result(tensors, first) == one);
}

TEST(AgainWithOtherNumbers, ScaledMaskedSoftmaxBackward) {
  struct Tensors {
    Tensors() {
      dy.fill_normal(1);
      y.fill_uniform(2, 0.0, 1.0);
      mask.fill_constant(0);
    }
    Tensor dy{{1, 2, 4, 8}, ACL_FLOAT}, y{{1, 2, 4, 8}, ACL_FLOAT}, mask{{1, 1, 4, 8}, ACL_BOOL};
    Tensor out{{1, 2, 4, 8}, ACL_FLOAT};
  };
  expect_numbers_count<Tensors>(
      0.5, 2.0,
      [](const Tensors& t, double scale, uint64_t* size, aclOpExecutor** executor) {
        return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(t.dy.handle(), t.y.handle(),
                                                                t.mask.handle(), scale, false,
                                                                t.out.handle(), size, executor);
      },
      aclnnScaledMaskedSoftmaxBackward);
}

TEST(AgainWithOtherNumbers, EmbeddingDenseBackward) {
  struct Tensors {
    Tensors() {
      dy.fill_normal(1);
      indices.fill_integers(2, 0, 4);
    }
    Tensor dy{{32, 8}, ACL_FLOAT}, indices{{32}, ACL_INT64}, out{{5, 8}, ACL_FLOAT};
  };
  struct Numbers {
    uint64_t padding;
    bool scale;
  };
  const auto plan = [](const Tensors& t, Numbers n, uint64_t* size, aclOpExecutor** executor) {
    return aclnnEmbeddingDenseBackwardGetWorkspaceSize(
        t.dy.handle(), t.indices.handle(), 5, n.padding, n.scale, t.out.handle(), size, executor);
  };
  expect_numbers_count<Tensors>(Numbers{1, false}, Numbers{2, false}, plan,
                                aclnnEmbeddingDenseBackward);
  expect_numbers_count<Tensors>(Numbers{1, false}, Numbers{1, true}, plan,
                                aclnnEmbeddingDenseBackward);
}

TEST(AgainWithOtherNumbers, LayerNorm) {
  struct Tensors {
    Tensors() { x.fill_normal(1); }
    Tensor x{{4, 8}, ACL_FLOAT}, out{{4, 8}, ACL_FLOAT};
    IntArray shape{Dims{8}};
  };
  expect_numbers_count<Tensors>(
      1e-5, 1.0,
      [](const Tensors& t, double eps, uint64_t* size, aclOpExecutor** executor) {
        return aclnnLayerNormGetWorkspaceSize(t.x.handle(), t.shape.handle(), nullptr, nullptr, eps,
                                              t.out.handle(), nullptr, nullptr, size, executor);
      },
      aclnnLayerNorm);
}

TEST(AgainWithOtherNumbers, LayoutOfNsaCompressGrad) {
  const Tensor dy({1, 1, 16}, ACL_FLOAT16), x({32, 1, 16}, ACL_FLOAT16), w({32, 1}, ACL_FLOAT16);
  const Tensor dx({32, 1, 16}, ACL_FLOAT16), dw({32, 1}, ACL_FLOAT16);
  char layout[] = "TND";
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  const auto plan = [&] {
    take_message();
    return aclnnNsaCompressGradGetWorkspaceSize(dy.handle(), x.handle(), w.handle(), nullptr, 32,
                                                16, 0, layout, dx.handle(), dw.handle(), &size,
                                                &executor);
  };
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_EQ(plan(), kOk) << take_message();
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), kOk);
  }
  layout[0] = 'B';
  EXPECT_EQ(plan(), kParamInvalid);
  expect_message(take_message(), {"layoutOptionalOptional", "BND"});
}

INSTANTIATE_TEST_SUITE_P(Operators, Again, ::testing::Range(size_t{0}, small_problem_count()),
                         row_name);

}  // namespace
}  // namespace aclgrad::test
