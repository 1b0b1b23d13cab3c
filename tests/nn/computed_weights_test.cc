// Layers whose weights are computed from other parameters at each call, by equalized_lr and spectral_norm;
// and NoiseInjection.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus {
namespace {

TEST(NoiseInjection, DrawsOtherNoiseForEachCallAndNoneWhenOff) {
  manual_seed(5);
  nn::NoiseInjection noise;
  nn::init::ones_(noise.strength);
  const Tensor x = zeros({4, 3, 8, 8}), first = noise(x), second = noise(x);
  EXPECT_NE(first.to_vector<float>(), second.to_vector<float>());
  // One number for all channels of a pixel.
  EXPECT_EQ(narrow(first, 1, 0, 1).to_vector<float>(), narrow(first, 1, 2, 1).to_vector<float>());
  EXPECT_NEAR(mean(square(first)).item<double>(), 1, 0.3);
  noise.mode = nn::NoiseMode::kNone;
  EXPECT_EQ(noise(x).to_vector<float>(), x.to_vector<float>());
}

TEST(EqualizedLR, StartsTheBiasAndScalesItLikeTheWeight) {
  nn::Linear layer({.in = 4, .out = 2});
  nn::equalized_lr(layer, {.gain = 1, .lr_mul = 0.5, .bias = 3});
  EXPECT_THAT(layer.parameter("bias").to_vector<float>(), testing::Each(6.0f));
  EXPECT_THAT(layer(zeros({1, 4})).to_vector<float>(), testing::Each(3.0f));
  nn::Linear plain({.in = 4, .out = 2});
  nn::equalized_lr(plain, {.gain = 1, .lr_mul = 0.5, .bias = 3, .scale_bias = false});
  EXPECT_THAT(plain.parameter("bias").to_vector<float>(), testing::Each(3.0f));
  EXPECT_THAT(plain(zeros({1, 4})).to_vector<float>(), testing::Each(3.0f));
}

TEST(SpectralNorm, MakesTheLargestSingularValueOne) {
  manual_seed(4);
  nn::Linear linear({.in = 6, .out = 5, .bias = false});
  nn::spectral_norm(linear);
  for (int i = 0; i < 100; ++i) linear(ones({1, 6}));
  const Tensor w = linear.weight;
  Tensor v = ones({6});
  for (int i = 0; i < 200; ++i) v = matmul(t(w), matmul(w, v)), v = v / norm(v);
  EXPECT_NEAR(norm(matmul(w, v)).item<double>(), 1, 1e-4);
}

TEST(SpectralNorm, LeavesItsVectorsInEvaluation) {
  manual_seed(5);
  nn::Linear linear({.in = 6, .out = 5});
  nn::spectral_norm(linear);
  const auto u = [&] { return linear.named_buffers()[0].second.to_vector<float>(); };
  const auto before = u();
  linear.eval();
  linear(ones({1, 6}));
  EXPECT_EQ(u(), before);
  linear.train();
  linear(ones({1, 6}));
  EXPECT_NE(u(), before);
}

TEST(ComputedWeights, AreLearnedThroughTheParametersThatStandForThem) {
  manual_seed(6);
  nn::Linear linear({.in = 3, .out = 2});
  const Tensor before = linear.weight;
  nn::equalized_lr(linear);
  const Tensor original = linear.state_dict()[1].second;
  EXPECT_TRUE(original.is_same(before)) << "an optimizer that was made before would lose its hold";
  GradManager gm;
  gm.attach(linear.parameters());
  auto recording = gm.record();
  gm.backward(sum(linear(ones({4, 3}))));
  EXPECT_TRUE(original.grad().defined());
  EXPECT_FALSE(linear.weight.grad().defined());
}

}  // namespace
}  // namespace gradus
