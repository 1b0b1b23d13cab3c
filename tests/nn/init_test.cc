// Initializers: moments and bounds of many draws against the distribution's, fans, and that the same seed
// gives the same numbers. Initial values of layers, which are torch.nn's.
#include "gradus/nn/init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::nn::init {
namespace {

struct Moments {
  double mean, deviation, low, high, kurtosis;
};

Moments moments(const Tensor& x) {
  const std::vector<double> v = x.to_vector<double>();
  double mean = 0, square = 0, fourth = 0;
  for (double e : v) mean += e / double(v.size());
  for (double e : v) square += (e - mean) * (e - mean) / double(v.size());
  for (double e : v) fourth += std::pow(e - mean, 4) / double(v.size());
  const auto [low, high] = std::minmax_element(v.begin(), v.end());
  return {mean, std::sqrt(square), *low, *high, fourth / square / square};
}

// The mean of 100,000 draws has a standard error of 1 / 316 of the deviation; kOff allows five of these.
constexpr int64_t kDraws = 100000;
constexpr double kOff = 5.0 / 316;

TEST(Init, UniformFillsItsRange) {
  manual_seed(1);
  const Moments m = moments(uniform_(empty({kDraws}), {.low = -2, .high = 4}));
  EXPECT_NEAR(m.mean, 1, kOff * std::sqrt(3));
  EXPECT_NEAR(m.deviation, 6 / std::sqrt(12), kOff * 3);
  EXPECT_GE(m.low, -2);
  EXPECT_LT(m.low, -1.99);
  EXPECT_LE(m.high, 4);
  EXPECT_GT(m.high, 3.99);
}

TEST(Init, NormalHasItsMoments) {
  manual_seed(2);
  const Moments m = moments(normal_(empty({kDraws}), {.mean = 3, .stddev = 2}));
  EXPECT_NEAR(m.mean, 3, kOff * 2);
  EXPECT_NEAR(m.deviation, 2, kOff * 2);
  EXPECT_NEAR(m.kurtosis, 3, 0.1);
}

TEST(Init, TruncNormalStaysWithinItsBounds) {
  manual_seed(3);
  // Of a standard normal cut at +-2: deviation 0.8796.
  const Moments wide =
      moments(trunc_normal_(empty({kDraws}), {.mean = 1, .stddev = 0.5, .low = 0, .high = 2}));
  EXPECT_NEAR(wide.mean, 1, kOff / 2);
  EXPECT_NEAR(wide.deviation, 0.8796 / 2, kOff / 2);
  EXPECT_GE(wide.low, 0);
  EXPECT_LE(wide.high, 2);
  // Far in the tail, beyond 5 deviations: the mean is 5.1865.
  const Moments tail = moments(trunc_normal_(empty({20000}), {.low = 5, .high = 50}));
  EXPECT_NEAR(tail.mean, 5.1865, 0.01);
  EXPECT_GE(tail.low, 5);
  const Moments other = moments(trunc_normal_(empty({20000}), {.low = -50, .high = -5}));
  EXPECT_NEAR(other.mean, -5.1865, 0.01);
  // Beyond 38 deviations the distribution function is 0 in f64.
  const Moments end = moments(trunc_normal_(empty({100}), {.low = -50, .high = -40}));
  EXPECT_GE(end.low, -50);
  EXPECT_LE(end.high, -40);
}

TEST(Init, FansCountTheKernel) {
  const Fans f = fans(empty({32, 16, 3, 5}));
  EXPECT_EQ(f.in, 16 * 15);
  EXPECT_EQ(f.out, 32 * 15);
  EXPECT_THROW(fans(empty({3})), ShapeError);
}

TEST(Init, KaimingAndXavierScaleWithTheFans) {
  manual_seed(4);
  const Tensor w = empty({200, 50, 3, 3});
  const double in = 450, out = 1800;
  EXPECT_NEAR(moments(kaiming_normal_(w, {.nonlinearity = Nonlinearity::kReLU})).deviation, std::sqrt(2 / in),
              0.001);
  EXPECT_NEAR(
      moments(kaiming_normal_(w, {.mode = FanMode::kFanOut, .nonlinearity = Nonlinearity::kReLU})).deviation,
      std::sqrt(2 / out), 0.001);
  const Moments k = moments(kaiming_uniform_(w, {.a = std::sqrt(5)}));
  EXPECT_NEAR(k.high, 1 / std::sqrt(in), 1e-4);
  EXPECT_NEAR(k.low, -1 / std::sqrt(in), 1e-4);
  EXPECT_NEAR(moments(xavier_normal_(w)).deviation, std::sqrt(2 / (in + out)), 0.001);
  EXPECT_NEAR(moments(xavier_uniform_(w, {.gain = 2})).high, 2 * std::sqrt(6 / (in + out)), 1e-3);
}

TEST(Init, OrthogonalRowsOrColumns) {
  manual_seed(5);
  for (const Shape& shape : {Shape{4, 7}, Shape{7, 4}, Shape{3, 2, 2, 2}}) {
    const Tensor w = orthogonal_(empty(shape, {.dtype = DType::kF64}), {.gain = 3});
    const std::vector<double> v = w.to_vector<double>();
    const int64_t rows = shape[0], cols = w.numel() / rows, n = std::min(rows, cols),
                  length = std::max(rows, cols);
    const auto at = [&](int64_t i, int64_t k) {
      return rows > cols ? v[size_t(k * cols + i)] : v[size_t(i * cols + k)];
    };
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double dot = 0;
        for (int64_t k = 0; k < length; ++k) dot += at(i, k) * at(j, k);
        EXPECT_NEAR(dot, i == j ? 9 : 0, 1e-12) << shape;
      }
  }
}

TEST(Init, DependsOnTheSeedAloneNotOnThreads) {
  const auto draw = [](uint64_t seed, int threads) {
    set_num_threads(threads);
    manual_seed(seed);
    return init::normal_(empty({20000})).to_vector<float>();
  };
  const std::vector<float> a = draw(7, 1), b = draw(7, 2), c = draw(8, 2);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(Init, RefusesWhatMakesNoSense) {
  EXPECT_THROW(uniform_(empty({2}), {.low = 1, .high = 0}), ValueError);
  EXPECT_THROW(normal_(empty({2}), {.stddev = -1}), ValueError);
  EXPECT_THROW(trunc_normal_(empty({2}), {.low = 1, .high = 1}), ValueError);
  EXPECT_THROW(zeros_(empty({2}, {.dtype = DType::kI64})), DTypeError);
}

// What PyTorch documents for its layers.
TEST(Init, LayersStartAsPyTorchsDo) {
  manual_seed(6);
  const nn::Linear fc({.in = 100, .out = 300});
  const Moments w = moments(fc.weight), b = moments(fc.bias);
  EXPECT_NEAR(w.high, 0.1, 1e-3);
  EXPECT_LE(w.high, 0.1);
  EXPECT_NEAR(w.low, -0.1, 1e-3);
  EXPECT_NEAR(b.high, 0.1, 5e-3);
  EXPECT_LE(b.high, 0.1);
  const nn::Conv2d conv({.in = 8, .out = 64, .kernel = {3, 5}, .groups = 2});
  EXPECT_EQ(conv.weight.shape(), (Shape{64, 4, 3, 5}));
  EXPECT_NEAR(moments(conv.weight).high, 1 / std::sqrt(60.0), 1e-3);
  EXPECT_LE(moments(conv.bias).high, 1 / std::sqrt(60.0));
}

}  // namespace
}  // namespace gradus::nn::init

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

TEST(InitialValues, OfTransformersAreXavier) {
  manual_seed(2);
  nn::Transformer net(
      {.d_model = 16, .nhead = 4, .num_encoder_layers = 1, .num_decoder_layers = 1, .dim_feedforward = 32});
  expect_uniform(net.encoder.layers[0].linear1.weight, std::sqrt(6.0 / (16 + 32)));
  expect_uniform(net.decoder.layers[0].multihead_attn.out_proj.weight, std::sqrt(6.0 / (16 + 16)));
  EXPECT_THAT(values(net.decoder.norm->weight), Each(1));
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
