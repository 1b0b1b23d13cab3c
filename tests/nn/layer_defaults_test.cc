// What layers begin with and how they print: initial values as torch.nn's, texts of their options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

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

struct Printed {
  std::string text, expected;
};

TEST(Printing, ShowsOptionsThatDiffer) {
  const auto text = [](const nn::Module& m) { return m.type_name() + "(" + m.extra_repr() + ")"; };
  const Printed all[] = {
      {text(nn::LSTM({.input_size = 3, .hidden_size = 4})), "LSTM(input_size=3, hidden_size=4)"},
      {text(nn::LSTM({.input_size = 3,
                      .hidden_size = 4,
                      .num_layers = 2,
                      .bias = false,
                      .batch_first = true,
                      .dropout = 0.5,
                      .bidirectional = true,
                      .proj_size = 2})),
       "LSTM(input_size=3, hidden_size=4, num_layers=2, bias=false, batch_first=true, dropout=0.5, "
       "bidirectional=true, proj_size=2)"},
      {text(nn::RNN({.input_size = 3, .hidden_size = 4, .nonlinearity = nn::RNNActivation::kReLU})),
       "RNN(input_size=3, hidden_size=4, nonlinearity=kReLU)"},
      {text(nn::GRUCell({.input_size = 3, .hidden_size = 4, .bias = false})),
       "GRUCell(input_size=3, hidden_size=4, bias=false)"},
      {text(nn::MultiheadAttention({.embed_dim = 8, .num_heads = 2, .batch_first = true})),
       "MultiheadAttention(embed_dim=8, num_heads=2, batch_first=true)"},
      {text(nn::TransformerEncoderLayer({.d_model = 8, .nhead = 2, .norm_first = true})),
       "TransformerEncoderLayer(d_model=8, nhead=2, norm_first=true)"},
      {text(nn::LayerNorm({.shape = 8})), "LayerNorm(shape=[8])"},
      {text(nn::RMSNorm({.shape = {2, 3}, .affine = false})), "RMSNorm(shape=[2,3], affine=false)"},
      {text(nn::GroupNorm({.groups = 2, .channels = 4})), "GroupNorm(groups=2, channels=4)"},
      {text(nn::InstanceNorm1d({.features = 4, .affine = true})), "InstanceNorm1d(features=4, affine=true)"},
      {text(nn::LocalResponseNorm({.size = 2})), "LocalResponseNorm(size=2)"},
      {text(nn::BatchNorm3d({.features = 4})), "BatchNorm3d(features=4)"},
      {text(nn::BatchNorm1d({.features = 4, .momentum = {}})), "BatchNorm1d(features=4, momentum=none)"},
      {text(nn::Embedding({.num_embeddings = 5, .embedding_dim = 3, .padding_idx = 0})),
       "Embedding(num_embeddings=5, embedding_dim=3, padding_idx=0)"},
      {text(nn::Bilinear({.in1 = 2, .in2 = 3, .out = 4})), "Bilinear(in1=2, in2=3, out=4)"},
      {text(nn::Unflatten({.dim = 1, .sizes = {2, -1}})), "Unflatten(dim=1, sizes=[2,-1])"},
      {text(nn::ChannelShuffle({.groups = 2})), "ChannelShuffle(groups=2)"},
      {text(nn::Identity()), "Identity()"},
      {text(nn::Mish()), "Mish()"},
      {text(nn::ConstantPad1d({.padding = {1, 2}, .value = 3})), "ConstantPad1d(padding=[1,2], value=3)"},
      {text(nn::ReflectionPad2d({.padding = 1})), "ReflectionPad2d(padding=[1,1,1,1])"},
      {text(nn::Upsample({.scale_factor = {2}})), "Upsample(scale_factor=[2])"},
      {text(nn::PixelShuffle({.factor = 2})), "PixelShuffle(factor=2)"},
      {text(nn::Fold({.output = 4, .kernel = 2, .stride = 2})), "Fold(output=4x4, kernel=2x2, stride=2x2)"},
      {text(nn::PReLU({.num_parameters = 3})), "PReLU(num_parameters=3)"},
      {text(nn::RReLU({.lower = 0.25, .upper = 0.5})), "RReLU(lower=0.25, upper=0.5)"},
      {text(nn::GELU({.approximate = Gelu::kTanh})), "GELU(approximate=kTanh)"},
      {text(nn::Softplus()), "Softplus()"},
      {text(nn::Hardtanh()), "Hardtanh()"},
      {text(nn::Threshold({.threshold = 1, .value = 2})), "Threshold(threshold=1, value=2)"},
      {text(nn::GLU()), "GLU()"},
      {text(nn::MaxPool1d({.kernel = 2, .dilation = 3})), "MaxPool1d(kernel=2, dilation=3)"},
      {text(nn::AvgPool3d({.kernel = 2, .padding = 1, .count_include_pad = false, .divisor_override = 3})),
       "AvgPool3d(kernel=2x2x2, padding=1x1x1, count_include_pad=false, divisor_override=3)"},
      {text(nn::LPPool2d({.p = 2, .kernel = 3, .stride = 1, .ceil_mode = true})),
       "LPPool2d(p=2, kernel=3x3, stride=1x1, ceil_mode=true)"},
      {text(nn::AdaptiveMaxPool2d({.output = {2, 3}})), "AdaptiveMaxPool2d(output=2x3)"},
      {text(nn::Conv1d({.in = 2, .out = 3, .kernel = 4, .same_padding = true})),
       "Conv1d(in=2, out=3, kernel=4, same_padding=true)"},
      {text(nn::Conv3d({.in = 2,
                        .out = 3,
                        .kernel = {1, 2, 3},
                        .padding = 1,
                        .padding_mode = nn::PaddingMode::kCircular})),
       "Conv3d(in=2, out=3, kernel=1x2x3, padding=1x1x1, padding_mode=kCircular)"},
      {text(nn::ConvTranspose2d(
           {.in = 2, .out = 3, .kernel = 4, .stride = 2, .output_padding = 1, .bias = false})),
       "ConvTranspose2d(in=2, out=3, kernel=4x4, stride=2x2, output_padding=1x1, bias=false)"},
      {text(nn::Dropout2d({.p = 0.2})), "Dropout2d(p=0.2)"},
      {text(nn::MinibatchStdDev()), "MinibatchStdDev()"},
      {text(nn::FirFilter2d({.up = 2, .padding = {2, 1}})), "FirFilter2d(up=2, padding=[2,1])"},
      {text(nn::BiasLeakyReLU({.channels = 3, .gain = 1})), "BiasLeakyReLU(channels=3, gain=1)"},
      {text(nn::TransformerEncoder({.layer = {.d_model = 8, .nhead = 2}, .num_layers = 1})),
       "TransformerEncoder(layer={d_model=8, nhead=2}, num_layers=1)"},
  };
  for (const Printed& p : all) EXPECT_EQ(p.text, p.expected);
}

struct ScaleOptions {
  bool inverse = false;
  Required<double, "by"> by;
  std::vector<std::string> names = {"a"};
  std::function<void()> done = {};
};
struct Scale : nn::LayerWith<ScaleOptions> {
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override {
    return options().inverse ? x / *options().by : x * *options().by;
  }
};
struct NamedScale : Scale {
  using Scale::Scale;
  std::string extra_repr() const override { return "named, " + Scale::extra_repr(); }
};
struct ShiftOptions : ScaleOptions {
  double shift = 0;
};
struct Shift : nn::LayerWith<ShiftOptions> {
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override { return x + options().shift; }
};

TEST(Printing, ShowsTheOptionsOfUsersLayers) {
  EXPECT_EQ(Scale({.by = 2}).extra_repr(), "inverse=false, by=2");
  EXPECT_EQ(NamedScale({.by = 2, .names = {"b", "c"}}).extra_repr(),
            "named, inverse=false, by=2, names=[b,c]");
  EXPECT_EQ(Shift({{.by = 2}, 3}).extra_repr(), "") << "options with a base";
}

}  // namespace
}  // namespace gradus
