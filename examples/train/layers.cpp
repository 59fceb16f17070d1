// SPDX-License-Identifier: Apache-2.0
#include "layers.h"

#include "aclnnop/aclnn_embedding.h"
#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "aclnnop/aclnn_layer_norm.h"
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "aclnnop/aclnn_nsa_compress.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "bfloat16.h"

namespace aclgrad::train {
namespace {

constexpr double kEpsilon = 1e-5;

Dims dims_of(std::initializer_list<size_t> sizes) {
  Dims dims;
  for (const size_t size : sizes) dims.push_back(static_cast<int64_t>(size));
  return dims;
}

// An array of truth values that lives as long as the call that reads it.
class Truths {
 public:
  Truths() { handle_ = aclCreateBoolArray(kAll, 3); }
  Truths(const Truths&) = delete;
  Truths& operator=(const Truths&) = delete;
  ~Truths() { static_cast<void>(aclDestroyBoolArray(handle_)); }
  aclBoolArray* get() const { return handle_; }

 private:
  static constexpr bool kAll[3] = {true, true, true};
  aclBoolArray* handle_;
};

}  // namespace

LayerNorm::LayerNorm(Operators& operators, size_t rows, size_t cols, const Memory& m)
    : operators_(operators),
      mean_(rows),
      rstd_(rows),
      x_(operators.workers(), dims_of({rows, cols}), operators.dtype(), m.x),
      y_(operators.workers(), dims_of({rows, cols}), operators.dtype(), m.y),
      dy_(operators.workers(), dims_of({rows, cols}), operators.dtype(), m.dy),
      dx_(operators.workers(), dims_of({rows, cols}), operators.dtype(), m.dx),
      gamma_(operators.workers(), dims_of({cols}), ACL_FLOAT, m.gamma),
      beta_(operators.workers(), dims_of({cols}), ACL_FLOAT, m.beta),
      dgamma_(operators.workers(), dims_of({cols}), ACL_FLOAT, m.dgamma),
      dbeta_(operators.workers(), dims_of({cols}), ACL_FLOAT, m.dbeta),
      mean_tensor_(dims_of({rows, 1}), ACL_FLOAT, mean_.data()),
      rstd_tensor_(dims_of({rows, 1}), ACL_FLOAT, rstd_.data()),
      forward_(
          Operator::layer_norm, Use::repeatedly,
          [&](uint64_t* workspace, aclOpExecutor** executor) {
            const Numbers normalized(dims_of({cols}));
            return aclnnLayerNormGetWorkspaceSize(
                x_.tensor(), normalized.get(), gamma_.tensor(), beta_.tensor(), kEpsilon,
                y_.tensor(), mean_tensor_.get(), rstd_tensor_.get(), workspace, executor);
          },
          aclnnLayerNorm),
      backward_(
          Operator::layer_norm_backward, Use::repeatedly,
          [&](uint64_t* workspace, aclOpExecutor** executor) {
            const Numbers normalized(dims_of({cols}));
            const Truths all;
            return aclnnLayerNormBackwardGetWorkspaceSize(
                dy_.tensor(), x_.tensor(), normalized.get(), mean_tensor_.get(), rstd_tensor_.get(),
                gamma_.tensor(), beta_.tensor(), all.get(), dx_.tensor(), dgamma_.tensor(),
                dbeta_.tensor(), workspace, executor);
          },
          aclnnLayerNormBackward) {}

void LayerNorm::backward() { operators_.run(backward_, {&dy_}, {&dx_, &dgamma_, &dbeta_}); }

Embedding::Embedding(Operators& operators, size_t rows, size_t cols, size_t table_rows,
                     float* table, const int64_t* indices, float* y, float* dy, float* dtable)
    : operators_(operators),
      table_(operators.workers(), dims_of({table_rows, cols}), operators.dtype(), table),
      y_(operators.workers(), dims_of({rows, cols}), operators.dtype(), y),
      dy_(operators.workers(), dims_of({rows, cols}), operators.dtype(), dy),
      dtable_(operators.workers(), dims_of({table_rows, cols}), ACL_FLOAT, dtable),
      indices_(dims_of({rows}), ACL_INT64, indices),
      forward_(
          Operator::embedding, Use::repeatedly,
          [&](uint64_t* workspace, aclOpExecutor** executor) {
            return aclnnEmbeddingGetWorkspaceSize(table_.tensor(), indices_.get(), y_.tensor(),
                                                  workspace, executor);
          },
          aclnnEmbedding),
      backward_(
          Operator::embedding_dense_backward, Use::repeatedly,
          [&](uint64_t* workspace, aclOpExecutor** executor) {
            constexpr uint64_t kNoPadding = ~uint64_t{0};
            return aclnnEmbeddingDenseBackwardGetWorkspaceSize(
                dy_.tensor(), indices_.get(), table_rows, kNoPadding, false, dtable_.tensor(),
                workspace, executor);
          },
          aclnnEmbeddingDenseBackward) {}

MaskedSoftmax::MaskedSoftmax(Operators& operators, const Dims& dims, float* x, float* y, float* dy,
                             const Dims& mask_dims, const uint8_t* mask, double scale)
    : operators_(operators),
      x_(operators.workers(), dims, operators.dtype(), x),
      y_(operators.workers(), dims, operators.dtype(), y),
      dy_(operators.workers(), dims, operators.dtype(), dy),
      mask_(mask_dims, ACL_BOOL, mask),
      forward_(
          Operator::scaled_masked_softmax, Use::repeatedly,
          [&](uint64_t* workspace, aclOpExecutor** executor) {
            return aclnnScaledMaskedSoftmaxGetWorkspaceSize(x_.tensor(), mask_.get(), scale, false,
                                                            y_.tensor(), workspace, executor);
          },
          aclnnScaledMaskedSoftmax),
      backward_(
          Operator::scaled_masked_softmax_backward, Use::repeatedly,
          [&](uint64_t* workspace, aclOpExecutor** executor) {
            return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
                dy_.tensor(), y_.tensor(), mask_.get(), scale, false, dy_.tensor(), workspace,
                executor);
          },
          aclnnScaledMaskedSoftmaxBackward) {}

GroupedBias::GroupedBias(Operators& operators, size_t rows, size_t cols, size_t groups, float* dy,
                         const int64_t* ends, float* dbias)
    : operators_(operators),
      dy_(operators.workers(), dims_of({rows, cols}), operators.dtype(), dy),
      dbias_(operators.workers(), dims_of({groups, cols}), operators.dtype(), dbias),
      ends_(dims_of({groups}), ACL_INT64, ends),
      backward_(
          Operator::grouped_bias_add_grad, Use::repeatedly,
          [&](uint64_t* workspace, aclOpExecutor** executor) {
            return aclnnGroupedBiasAddGradGetWorkspaceSize(dy_.tensor(), ends_.get(),
                                                           dbias_.tensor(), workspace, executor);
          },
          aclnnGroupedBiasAddGrad) {}

Compression::Compression(Operators& operators, const Size& size, float* weight, float* dweight)
    : operators_(operators),
      size_(size),
      weight_(operators.workers(), dims_of({size.block, size.heads}), ACL_BF16, weight),
      dweight_(operators.workers(), dims_of({size.block, size.heads}), ACL_BF16, dweight),
      y_(size.most_windows * size.heads * size.width),
      dy_(y_.size()),
      dx_(size.tokens * size.heads * size.width),
      x_rounded_(dx_.size()),
      y_rounded_(y_.size()),
      dy_rounded_(y_.size()),
      dx_rounded_(dx_.size()) {}

void Compression::forward(const float* x, size_t row_stride, const std::vector<int64_t>& ends,
                          size_t windows) {
  const size_t cols = size_.heads * size_.width;
  ends_ = ends;
  windows_ = windows;
  operators_.workers().run_rows(size_.tokens, [&](size_t row) {
    for (size_t col = 0; col < cols; ++col) {
      x_rounded_[row * cols + col] = to_bfloat16(x[row * row_stride + col]);
    }
  });
  const Tensor in(dims_of({size_.tokens, size_.heads, size_.width}), ACL_BF16, x_rounded_.data());
  const Tensor out(dims_of({windows, size_.heads, size_.width}), ACL_BF16, y_rounded_.data());
  const Numbers sequence_ends(ends_);
  Call call(
      Operator::nsa_compress, Use::once,
      [&](uint64_t* workspace, aclOpExecutor** executor) {
        char layout[] = "TND";
        return aclnnNsaCompressGetWorkspaceSize(in.get(), weight_.tensor(), sequence_ends.get(),
                                                layout, static_cast<int64_t>(size_.block),
                                                static_cast<int64_t>(size_.stride), 0, out.get(),
                                                workspace, executor);
      },
      aclnnNsaCompress);
  operators_.run(call, {&weight_}, {});
  for (size_t i = 0; i < windows * cols; ++i) y_[i] = from_bfloat16(y_rounded_[i]);
}

void Compression::append_rounded(std::vector<uint16_t>& to) const {
  to.insert(to.end(), x_rounded_.data(), x_rounded_.data() + x_rounded_.size());
  const size_t written = windows_ * size_.heads * size_.width;
  to.insert(to.end(), y_rounded_.data(), y_rounded_.data() + written);
}

void Compression::backward(float* dx, size_t row_stride) {
  const size_t cols = size_.heads * size_.width;
  for (size_t i = 0; i < windows_ * cols; ++i) dy_rounded_[i] = to_bfloat16(dy_[i]);
  const Dims rows = dims_of({size_.tokens, size_.heads, size_.width});
  const Tensor dy(dims_of({windows_, size_.heads, size_.width}), ACL_BF16, dy_rounded_.data());
  const Tensor in(rows, ACL_BF16, x_rounded_.data()), out(rows, ACL_BF16, dx_rounded_.data());
  const Numbers sequence_ends(ends_);
  Call call(
      Operator::nsa_compress_grad, Use::once,
      [&](uint64_t* workspace, aclOpExecutor** executor) {
        char layout[] = "TND";
        return aclnnNsaCompressGradGetWorkspaceSize(
            dy.get(), in.get(), weight_.tensor(), sequence_ends.get(),
            static_cast<int64_t>(size_.block), static_cast<int64_t>(size_.stride), 0, layout,
            out.get(), dweight_.tensor(), workspace, executor);
      },
      aclnnNsaCompressGrad);
  operators_.run(call, {}, {&dweight_});
  operators_.workers().run_rows(size_.tokens, [&](size_t row) {
    for (size_t col = 0; col < cols; ++col) {
      dx_[row * cols + col] = from_bfloat16(dx_rounded_[row * cols + col]);
      dx[row * row_stride + col] += dx_[row * cols + col];
    }
  });
  operators_.add_to_norm(Operator::nsa_compress_grad, dx_.data(), dx_.size());
}

}  // namespace aclgrad::train
