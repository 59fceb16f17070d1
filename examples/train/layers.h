// SPDX-License-Identifier: Apache-2.0
// The operators as layers: each holds its tensors and its planned calls, forward and backward.
#ifndef ACLGRAD_TRAIN_LAYERS_H_
#define ACLGRAD_TRAIN_LAYERS_H_

#include "operators.h"

namespace aclgrad::train {

// y = layer_norm(x) * gamma + beta for each of `rows` rows.
class LayerNorm {
 public:
  struct Memory {
    float *x, *gamma, *beta, *y;      // forward
    float *dy, *dx, *dgamma, *dbeta;  // backward
  };
  LayerNorm(Operators& operators, size_t rows, size_t cols, const Memory& memory);
  void forward() { operators_.run(forward_, {&x_}, {&y_}); }
  void backward();

 private:
  Operators& operators_;
  Array<float> mean_, rstd_;
  Port x_, y_, dy_, dx_, gamma_, beta_, dgamma_, dbeta_;
  Tensor mean_tensor_, rstd_tensor_;
  Call forward_, backward_;
};

// y[i] = table[indices[i]].
class Embedding {
 public:
  Embedding(Operators& operators, size_t rows, size_t cols, size_t table_rows, float* table,
            const int64_t* indices, float* y, float* dy, float* dtable);
  void forward() { operators_.run(forward_, {&table_}, {&y_}); }
  void backward() { operators_.run(backward_, {&dy_}, {&dtable_}); }

 private:
  Operators& operators_;
  Port table_, y_, dy_, dtable_;
  Tensor indices_;
  Call forward_, backward_;
};

// y = softmax(scale * x), masked entries 0 (a row masked throughout is uniform); the gradient is
// computed in place of dy. `dims` are [batch, heads, rows, cols], the mask's [batch or 1, 1, rows,
// cols].
class MaskedSoftmax {
 public:
  MaskedSoftmax(Operators& operators, const Dims& dims, float* x, float* y, float* dy,
                const Dims& mask_dims, const uint8_t* mask, double scale);
  void forward() { operators_.run(forward_, {&x_}, {&y_}); }
  void backward() { operators_.run(backward_, {&y_, &dy_}, {&dy_}); }

 private:
  Operators& operators_;
  Port x_, y_, dy_;
  Tensor mask_;
  Call forward_, backward_;
};

// dbias[j] = sum of the rows of dy from ends[j - 1] to ends[j].
class GroupedBias {
 public:
  GroupedBias(Operators& operators, size_t rows, size_t cols, size_t groups, float* dy,
              const int64_t* ends, float* dbias);
  void backward() { operators_.run(backward_, {&dy_}, {&dbias_}); }

 private:
  Operators& operators_;
  Port dy_, dbias_;
  Tensor ends_;
  Call backward_;
};

// Windows of keys or values, in BF16: the operator has no FP32. How many there are changes with the
// text, so each use plans anew.
class Compression {
 public:
  struct Size {
    size_t tokens = 0, heads = 0, width = 0;  // width of a head
    size_t block = 0, stride = 0;             // tokens of a window, and from one to the next
    size_t most_windows = 0;
  };
  // `weight` and `dweight` are [block, heads].
  Compression(Operators& operators, const Size& size, float* weight, float* dweight);

  // What the rows at x, `row_stride` floats apart, give in sequences that end at `ends`: `windows`
  // rows of heads * width at y().
  void forward(const float* x, size_t row_stride, const std::vector<int64_t>& ends, size_t windows);
  // With the windows' gradient at dy(): adds the rows' gradient at dx, and writes the weight's.
  void backward(float* dx, size_t row_stride);
  const float* y() const { return y_.data(); }
  float* dy() { return dy_.data(); }
  // Appends what the latest forward read and wrote in BF16.
  void append_rounded(std::vector<uint16_t>& to) const;

 private:
  Operators& operators_;
  Size size_;
  Port weight_, dweight_;
  std::vector<int64_t> ends_;
  size_t windows_ = 0;
  Array<float> y_, dy_, dx_;
  Array<uint16_t> x_rounded_, y_rounded_, dy_rounded_, dx_rounded_;
};

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_LAYERS_H_
