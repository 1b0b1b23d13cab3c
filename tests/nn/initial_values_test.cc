// Initial values of layers, which are torch.nn's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus {
namespace {

using testing::Each;

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }

// Uniform in +-bound: nothing outside, the largest close to it, the deviation bound / sqrt(3).
void expect_uniform(const Tensor& x, double bound) {
  double largest = 0, squares = 0;
  for (const double v : x.to_vector<double>()) largest = std::max(largest, std::abs(v)), squares += v * v;
  EXPECT_LE(largest, bound * (1 + 1e-6));
  EXPECT_GT(largest, bound * 0.95);
  EXPECT_NEAR(std::sqrt(squares / double(x.numel())), bound / std::sqrt(3), bound * 0.1);
}
void expect_normal(const Tensor& x, double deviation) {
  double squares = 0;
  for (const double v : x.to_vector<double>()) squares += v * v;
  EXPECT_NEAR(std::sqrt(squares / double(x.numel())), deviation, deviation * 0.1);
}

TEST(InitialValues, OfRecurrentLayersAreUniformByTheHiddenSize) {
  manual_seed(1);
  nn::LSTM lstm({.input_size = 9, .hidden_size = 16, .num_layers = 2, .bidirectional = true});
  EXPECT_EQ(lstm.parameters().size(), 16u);
  for (const Tensor& p : lstm.parameters()) expect_uniform(p, 0.25);
  nn::GRUCell cell({.input_size = 9, .hidden_size = 16});
  for (const Tensor& p : cell.parameters()) expect_uniform(p, 0.25);
}

TEST(InitialValues, OfConvolutionsAreUniformByTheFanIn) {
  manual_seed(6);
  nn::Conv1d conv1({.in = 8, .out = 64, .kernel = 3, .groups = 2});
  expect_uniform(conv1.weight, 1 / std::sqrt(4 * 3.0));
  expect_uniform(conv1.bias, 1 / std::sqrt(4 * 3.0));
  nn::Conv3d conv3({.in = 4, .out = 64, .kernel = {1, 2, 3}});
  expect_uniform(conv3.weight, 1 / std::sqrt(4 * 6.0));
  nn::ConvTranspose2d transposed({.in = 8, .out = 64, .kernel = 2, .groups = 4});
  EXPECT_EQ(transposed.weight.shape(), (Shape{8, 16, 2, 2}));
  expect_uniform(transposed.weight, 1 / std::sqrt(16 * 4.0));
  expect_uniform(transposed.bias, 1 / std::sqrt(16 * 4.0));
}

TEST(InitialValues, OfAttentionAreXavierAndZero) {
  manual_seed(2);
  nn::MultiheadAttention same({.embed_dim = 16, .num_heads = 4, .add_bias_kv = true});
  expect_uniform(same.in_proj_weight, std::sqrt(6.0 / (16 + 48)));
  expect_uniform(same.out_proj.weight, 1 / std::sqrt(16.0));
  EXPECT_THAT(values(same.in_proj_bias), Each(0));
  EXPECT_THAT(values(same.out_proj.bias), Each(0));
  EXPECT_EQ(same.bias_k.shape(), (Shape{1, 1, 16}));
  nn::MultiheadAttention other({.embed_dim = 16, .num_heads = 4, .kdim = 24});
  expect_uniform(other.k_proj_weight, std::sqrt(6.0 / (16 + 24)));
  expect_uniform(other.q_proj_weight, std::sqrt(6.0 / (16 + 16)));
  EXPECT_FALSE(other.in_proj_weight.defined());
}

TEST(InitialValues, OfNormalizationsAreOneAndZero) {
  nn::LayerNorm norm({.shape = {2, 3}});
  EXPECT_THAT(values(norm.weight), Each(1));
  EXPECT_THAT(values(norm.bias), Each(0));
  nn::InstanceNorm2d instance({.features = 3, .affine = true, .track_running_stats = true});
  EXPECT_THAT(values(instance.running_mean), Each(0));
  EXPECT_THAT(values(instance.running_var), Each(1));
  EXPECT_EQ(instance.num_batches_tracked.item<int64_t>(), 0);
}

TEST(InitialValues, OfPReLU) { EXPECT_THAT(values(nn::PReLU({.num_parameters = 3}).weight), Each(0.25f)); }

TEST(InitialValues, OfBilinearAndEmbedding) {
  manual_seed(3);
  nn::Bilinear bilinear({.in1 = 25, .in2 = 4, .out = 10});
  expect_uniform(bilinear.weight, 0.2);
  nn::Embedding embedding({.num_embeddings = 50, .embedding_dim = 20, .padding_idx = 3});
  expect_normal(embedding.weight, 1);
  EXPECT_THAT(values(select(embedding.weight, 0, 3)), Each(0));
}

TEST(InitialValues, OfEqualizedLayersAreNormal) {
  manual_seed(4);
  nn::Linear linear({.in = 50, .out = 40});
  nn::equalized_lr(linear, {.lr_mul = 0.01});
  const nn::StateDict state = linear.state_dict();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].first, "weight_orig");
  expect_normal(state[0].second, 100);
  EXPECT_THAT(values(linear.bias), Each(0));
  expect_normal(linear.weight, std::sqrt(2.0 / 50));
}

TEST(InitialValues, OfSpectralNormAreUnitVectors) {
  manual_seed(5);
  nn::Linear linear({.in = 5, .out = 4});
  nn::spectral_norm(linear);
  for (const auto& [name, b] : linear.named_buffers()) EXPECT_NEAR(norm(b).item<double>(), 1, 1e-6) << name;
  EXPECT_EQ(linear.named_buffers().size(), 2u);
}

TEST(RReLU, DrawsSlopesInTrainingAlone) {
  manual_seed(7);
  nn::RReLU layer({.lower = 0.2, .upper = 0.4});
  const Tensor x = full({1000}, -1);
  const std::vector<float> y = values(layer(x));
  EXPECT_GE(*std::min_element(y.begin(), y.end()), -0.4f);
  EXPECT_LE(*std::max_element(y.begin(), y.end()), -0.2f);
  EXPECT_NEAR(mean(layer(x)).item<double>(), -0.3, 0.01);
  layer.eval();
  for (const float v : values(layer(x))) EXPECT_FLOAT_EQ(v, -0.3f);
  EXPECT_THAT(values(layer(ones({3}))), Each(1));
}

}  // namespace
}  // namespace gradus
