// Derivatives of first and second order through whole layers, and what computed weights do between calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus {
namespace {

// Checks both orders of f with respect to x and the module's parameters.
template <class F> void expect_gradients(nn::Module& m, const Tensor& x, F f) {
  m.to(DType::kF64);
  std::vector<Tensor> inputs{x};
  for (const Tensor& p : m.parameters()) inputs.push_back(p);
  const auto g = [&](const std::vector<Tensor>& in) {
    const nn::ParameterScope scope(m, std::vector<Tensor>(in.begin() + 1, in.end()));
    return f(in[0]);
  };
  const auto first = autograd::gradcheck(g, inputs), second = autograd::gradgradcheck(g, inputs);
  EXPECT_TRUE(first) << first.message;
  EXPECT_TRUE(second) << second.message;
}

Tensor input(const Shape& shape) { return randn(shape, {.dtype = DType::kF64}); }

TEST(LayerGradients, OfRecurrentLayers) {
  manual_seed(1);
  nn::LSTM lstm({.input_size = 2, .hidden_size = 2, .num_layers = 2});
  expect_gradients(lstm, input({3, 1, 2}), [&](const Tensor& x) {
    const auto [y, state] = lstm(x);
    return cat({y, state.c}, 0);
  });
  nn::GRU gru({.input_size = 2, .hidden_size = 2, .bidirectional = true});
  expect_gradients(gru, input({2, 1, 2}), [&](const Tensor& x) { return gru(x).output; });
}

TEST(LayerGradients, OfTransformers) {
  manual_seed(2);
  nn::TransformerEncoderLayer layer({.d_model = 4,
                                     .nhead = 2,
                                     .dim_feedforward = 3,
                                     .dropout = 0,
                                     .activation = nn::TransformerActivation::kGELU,
                                     .batch_first = true});
  expect_gradients(layer, input({1, 3, 4}), [&](const Tensor& x) { return layer(x, {.causal = true}); });
}

TEST(LayerGradients, OfNormalizedWeights) {
  manual_seed(3);
  nn::Conv2d conv({.in = 2, .out = 2, .kernel = 2});
  nn::spectral_norm(conv).eval();
  expect_gradients(conv, input({1, 2, 3, 3}), [&](const Tensor& x) { return conv(x); });
  nn::Linear linear({.in = 3, .out = 2});
  nn::weight_norm(linear);
  expect_gradients(linear, input({2, 3}), [&](const Tensor& x) { return linear(x); });
}

TEST(LayerGradients, OfBlocksOfGANs) {
  manual_seed(4);
  const auto expect_of = [](nn::Layer& layer, const Shape& shape) {
    expect_gradients(layer, input(shape), [&](const Tensor& x) { return layer(x); });
  };
  nn::PixelNorm norm;
  expect_of(norm, {2, 3, 2, 2});
  nn::UpConv2d up({.in = 2, .out = 2});
  expect_of(nn::equalized_lr(up, {.lr_mul = 0.5}), {1, 2, 2, 2});
  nn::DownConv2d down({.in = 2, .out = 2});
  expect_of(nn::equalized_lr(down), {1, 2, 4, 2});
  nn::FirFilter2d filter({.up = 2, .down = 3, .padding = {2, 1}});
  expect_of(filter, {1, 2, 3, 3});
  nn::BiasLeakyReLU bias({.channels = 3});
  expect_of(bias, {2, 3, 2});
  nn::NoiseInjection noise({.size = 2});
  noise.mode = nn::NoiseMode::kFixed;
  expect_of(noise, {2, 2, 2, 2});
  nn::AdaptiveInstanceNorm adaptive({.channels = 2, .style = 3});
  const Tensor w = input({2, 3});
  expect_gradients(adaptive, input({2, 2, 2, 2}), [&](const Tensor& x) { return adaptive(x, w); });
}

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
