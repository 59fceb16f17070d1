// SPDX-License-Identifier: Apache-2.0
// No score depends on a later byte, by any of its ways: attention, the compressed branch, the
// places of windows and of the experts' rows, which all move when a later byte changes. Nor on
// another row of the batch, which shares the experts.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "model.h"
#include "product.h"
#include "text.h"

namespace aclgrad::train {
namespace {

struct Scene {
  Scene(const std::string& name, aclDataType dtype, size_t rows)
      : size(model_size(name)),
        operators(device, workers, dtype),
        text(TRAIN_TEXT, size.context),
        parameters(size, dtype),
        model(operators, parameters, size, rows),
        batch(text.training_batch(1, 0, rows)) {
    use_one_blas_thread();
    parameters.start(7);
    parameters.refresh(workers);
  }
  std::vector<float> scores(const std::vector<uint8_t>& bytes) {
    model.forward(bytes.data(), text.sequence_ends(bytes));
    return {model.scores(), model.scores() + bytes.size() * kBytes};
  }

  ModelSize size;
  Workers workers{2};
  Device device;
  Operators operators;
  Text text;
  Parameters parameters;
  Model model;
  Batch batch;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b, size_t begin, size_t end) {
  return std::memcmp(&a[begin * kBytes], &b[begin * kBytes], (end - begin) * kBytes * 4) == 0;
}

// Changes each byte of the first row in turn, to a letter or to the end of a line (which moves the
// paragraphs), and looks at all scores before it, and at all other rows.
void expect_causal(const std::string& name, aclDataType dtype, size_t rows, size_t stride) {
  Scene scene(name, dtype, rows);
  const std::vector<float> before = scene.scores(scene.batch.bytes);
  for (size_t changed = 1; changed < scene.size.context; changed += stride) {
    for (const uint8_t value : {uint8_t{'\n'}, uint8_t{'x'}}) {
      std::vector<uint8_t> bytes = scene.batch.bytes;
      if (bytes[changed] == value) continue;
      bytes[changed] = value;
      // A paragraph ends at an empty line of this text.
      if (value == '\n' && changed + 1 < scene.size.context) bytes[changed + 1] = value;
      const std::vector<float> after = scene.scores(bytes);
      EXPECT_TRUE(same_bits(before, after, 0, changed)) << name << ", byte " << changed;
      EXPECT_FALSE(same_bits(before, after, changed, changed + 1)) << name << ", byte " << changed;
      EXPECT_TRUE(same_bits(before, after, scene.size.context, bytes.size()))
          << name << ", other rows, byte " << changed;
    }
  }
}

TEST(TrainCausality, NoScoreSeesALaterByte) { expect_causal("small", ACL_FLOAT, 3, 1); }
TEST(TrainCausality, NorInBfloat16) { expect_causal("small", ACL_BF16, 3, 3); }
TEST(TrainCausality, NorInTheBaseModel) { expect_causal("base", ACL_FLOAT, 2, 11); }

// Paragraphs end where a byte decides it, never because of what follows.
TEST(TrainCausality, SequencesEndByWhatIsBefore) {
  const Scene scene("base", ACL_FLOAT, 16);
  const size_t context = scene.size.context;
  const auto context_end = static_cast<int64_t>(context);
  size_t inner = 0;
  for (size_t step = 0; step < 20; ++step) {
    const Batch batch = scene.text.training_batch(3, step, 1);
    for (const int64_t end : batch.sequence_ends) {
      if (end == context_end) continue;
      ++inner;
      std::vector<uint8_t> bytes = batch.bytes;
      std::fill(bytes.begin() + end, bytes.end(), uint8_t{'\n'});
      const std::vector<int64_t> ends = scene.text.sequence_ends(bytes);
      EXPECT_NE(std::find(ends.begin(), ends.end(), end), ends.end());
    }
  }
  EXPECT_GT(inner, 5u);
}

// The first queries of a row see no window, the last ones do, and windows stay in their sequence.
TEST(TrainCausality, WindowsEndBeforeTheirQueries) {
  const ModelSize size = model_size("small");
  const Device device;
  Windows windows(size, 2);
  const std::vector<int64_t> ends = {50, 64, 64, 128};  // the third is empty
  windows.place(size, ends);
  ASSERT_EQ(windows.list.size(), 5u);  // 0-31, 16-47, then 64-95, 80-111, 96-127
  EXPECT_EQ(windows.seen[30], 0);
  EXPECT_EQ(windows.seen[31], 1);
  EXPECT_EQ(windows.seen[64 + 30], 0);
  EXPECT_EQ(windows.seen[64 + 31], 1);
  const size_t slots = size.most_windows();
  EXPECT_EQ(windows.mask[46 * slots + 1], 1);
  EXPECT_EQ(windows.mask[47 * slots + 1], 0);
  EXPECT_EQ(windows.mask[63 * slots + 2], 1);  // no third window in the first row
  EXPECT_EQ(windows.mask[(64 + 63) * slots + 2], 0);
}

}  // namespace
}  // namespace aclgrad::train
