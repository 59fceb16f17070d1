// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward of tensors that lie in any way: the bits of contiguous ones, and no copy of
// them.
#include <gtest/gtest.h>

#include <string>

#include "ops/layer_norm_backward/test_problem.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

TEST(LayerNormBackward, EveryStridedViewGivesTheSameBits) {
  for (const Dims& dims : {Dims{6, 5, 20}, Dims{3, 17, 33}}) {
    for (const aclDataType dtype : kFloats) {
      for (const size_t normalized : {1u, 2u}) {
        Options options = all_of(dtype);
        options.normalized = normalized;
        Problem plain(dims, options);
        ASSERT_TRUE(plain.run_it().ok());
        for (const Arrangement in : kInputArrangements) {
          for (const Arrangement out : kOutputArrangements) {
            SCOPED_TRACE(std::string(arrangement_name(in)) + " to " + arrangement_name(out));
            options.in = in;
            options.out = out;
            Problem view(dims, options);
            ASSERT_TRUE(view.run_it().ok());
            view.expect_right(view.exact());
            if (in != Arrangement::kBroadcast) {
              expect_same_bits("view", view.output_bits(), plain.output_bits());
            }
          }
        }
      }
    }
  }
}

TEST(LayerNormBackward, OnlyTheLastDimensionNeedBeContiguousToRunInPlace) {
  for (const Segmented& shape : segmented_shapes()) {
    for (const aclDataType dtype : kFloats) {
      for (const Forms& forms : kForms) {
        Options options = all_of(dtype);
        options.normalized = shape.normalized;
        expect_like_contiguous(shape.dims, options, forms);
      }
    }
  }
}

TEST(LayerNormBackward, SegmentedRowsOnEveryTargetWithEveryDtypeAndMask) {
  for_each_target([](const std::string&) {
    for (const Dims& dims : {Dims{19, 11, 47}, Dims{3, 3, 2800}}) {
      for (const Forms& forms : {kForms[0], kForms[4]}) {
        for (const aclDataType dtype : kFloats) {
          Options options = all_of(dtype);
          options.normalized = 2;
          for (const aclDataType dx : kFloats) {
            options.dx = dx;
            expect_like_contiguous(dims, options, forms);
          }
          for (int mask = 1; mask < 8; ++mask) {
            for (int i = 0; i < 3; ++i) options.want[i] = (mask >> i & 1) != 0;
            expect_like_contiguous(dims, options, forms);
          }
        }
      }
    }
  });
}

TEST(LayerNormBackward, SegmentedRowsOverwrittenInPlace) {
  for (const Dims& dims : {Dims{37, 3, 200}, Dims{21, 9, 4}, Dims{3, 3, 2900}}) {
    for (const aclDataType dtype : kFloats) {
      for (const Form form : {Form::kPadded, Form::kPermuted}) {
        Options options = all_of(dtype);
        options.normalized = 2;
        Problem apart(dims, options);
        const Outcome expected = apart.run_it();
        ASSERT_TRUE(expected.ok()) << expected;
        options.dy_strides = options.x_strides = form_strides(dims, form);
        for (const bool on_dy : {true, false}) {
          Problem same(dims, options);
          const Outcome outcome = run(
              [&](uint64_t* size, aclOpExecutor** executor) {
                return same.plan(size, executor, on_dy ? same.dy.handle() : same.x.handle());
              },
              aclnnLayerNormBackward);
          ASSERT_TRUE(outcome.ok()) << outcome;
          if (!aclgrad_has_device_queues()) {  // as in expect_like_contiguous()
            EXPECT_EQ(outcome.workspace_size, expected.workspace_size);
          }
          expect_same_bits("dx", (on_dy ? same.dy : same.x).bits(), apart.dx.bits());
          expect_same_bits("dgamma", same.dgamma.bits(), apart.dgamma.bits());
          expect_same_bits("dbeta", same.dbeta.bits(), apart.dbeta.bits());
        }
      }
    }
  }
}

}  // namespace
}  // namespace aclgrad::test
