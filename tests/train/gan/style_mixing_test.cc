// mix_styles: which layers come from which latent, for one cut and for one cut per image; gradients; errors.
#include "gradus/train/gan/style_mixing.h"

#include <gtest/gtest.h>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using gan::mix_styles;

// Returns, for each image, a string of the layers' sources: "112" has two layers of the first styles.
std::vector<std::string> sources(int64_t images, const Tensor& cut) {
  const Tensor mixed = mix_styles(ones({images, 3, 2}), full({images, 3, 2}, 2), cut);
  std::vector<std::string> rows(size_t(images), "");
  for (int64_t n = 0; n < images; ++n)
    for (int64_t layer = 0; layer < 3; ++layer) {
      const std::vector<float> w = mixed[n][layer].to_vector<float>();
      EXPECT_EQ(w[0], w[1]);
      rows[size_t(n)] += w[0] == 1 ? '1' : '2';
    }
  return rows;
}

TEST(MixStyles, TakesLayersBeforeTheCutFromTheFirst) {
  EXPECT_EQ(sources(2, tensor(std::vector<int64_t>{2}, {})), (std::vector<std::string>{"112", "112"}));
  EXPECT_EQ(sources(4, tensor(std::vector<int64_t>{0, 1, 3, 7}, {4})),
            (std::vector<std::string>{"222", "122", "111", "111"}));
}

TEST(MixStyles, SendsTheGradientToTheLayersItTook) {
  const Tensor a = ones({1, 3, 1}), b = ones({1, 3, 1});
  GradManager gm;
  gm.attach({a, b});
  auto recording = gm.record();
  gm.backward(sum(mix_styles(a, b, tensor(std::vector<int64_t>{1}, {})) * 5));
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{5, 0, 0}));
  EXPECT_EQ(b.grad().to_vector<float>(), (std::vector<float>{0, 5, 5}));
}

TEST(MixStyles, RefusesOtherShapesAndCuts) {
  const Tensor ws = ones({2, 3, 4}), cut = tensor(std::vector<int64_t>{1}, {});
  EXPECT_ERROR(ShapeError, mix_styles(ws, ones({2, 3, 5}), cut), "[mix_styles]", "f32[2,3,5]");
  EXPECT_ERROR(ShapeError, mix_styles(ws, ws, tensor(std::vector<int64_t>{1, 1, 1}, {3})), "i64[3]");
  EXPECT_ERROR(DTypeError, mix_styles(ws, ws, ones({})), "integer", "f32[]");
}

}  // namespace
}  // namespace gradus
