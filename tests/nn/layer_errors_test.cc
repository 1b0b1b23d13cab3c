// Mistakes in the use of layers: the type of error, the layer's name and the values in its text, and where in
// the tree it happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"

namespace gradus {
namespace {

using testing::HasSubstr;

template <class E, class F> void expect_error(F f, std::initializer_list<const char*> says) {
  try {
    f();
    ADD_FAILURE() << "no error, expected one with " << *says.begin();
  } catch (const E& e) {
    for (const char* part : says) EXPECT_THAT(e.what(), HasSubstr(part));
  }
}

Tensor indices() { return to(ones({2}), DType::kI64); }

TEST(LayerErrors, OfRecurrentLayers) {
  using nn::LSTM;
  expect_error<ValueError>([] { LSTM({.input_size = 0, .hidden_size = 4}); }, {"[LSTM]", ">= 1", "0, 4"});
  expect_error<ValueError>([] { nn::GRU({.input_size = 3, .hidden_size = 4, .num_layers = 0}); },
                           {"[GRU]", "0"});
  expect_error<ValueError>([] { nn::RNN({.input_size = 3, .hidden_size = 4, .dropout = 2}); },
                           {"[RNN]", "dropout", "2"});
  expect_error<ValueError>([] { LSTM({.input_size = 3, .hidden_size = 4, .proj_size = 4}); },
                           {"[LSTM]", "proj_size", "4"});
  LSTM lstm({.input_size = 3, .hidden_size = 4, .batch_first = true});
  expect_error<ShapeError>([&] { lstm(ones({2, 5, 4})); }, {"[LSTM]", "[N,T,3]", "f32[2,5,4]"});
  expect_error<ShapeError>([&] { lstm(ones({2, 0, 3})); }, {"[LSTM]", "T >= 1", "f32[2,0,3]"});
  expect_error<ShapeError>([&] { lstm(ones({3})); }, {"[LSTM]", "f32[3]"});
  expect_error<ShapeError>(
      [&] {
        lstm(ones({2, 5, 3}), {ones({1, 3, 4}), ones({1, 2, 4})});
      },
      {"[LSTM]", "h [1,2,4]", "f32[1,3,4]"});
  expect_error<ShapeError>(
      [&] {
        lstm(ones({2, 5, 3}), {ones({1, 2, 4}), ones({1, 2, 5})});
      },
      {"[LSTM]", "c [1,2,4]", "f32[1,2,5]"});
  nn::GRUCell cell({.input_size = 3, .hidden_size = 4});
  expect_error<ShapeError>([&] { cell(ones({2, 4})); }, {"[GRUCell]", "[N,3]", "f32[2,4]"});
  expect_error<ShapeError>([&] { cell(ones({2, 3}), ones({2, 3})); }, {"[GRUCell]", "[2,4]", "f32[2,3]"});
  expect_error<ValueError>([] { nn::LSTMCell({.input_size = 3, .hidden_size = 0}); }, {"[LSTMCell]", "3, 0"});
}

TEST(LayerErrors, OfAttention) {
  using nn::MultiheadAttention;
  expect_error<ValueError>([] { MultiheadAttention({.embed_dim = 6, .num_heads = 4}); },
                           {"[MultiheadAttention]", "6 and 4"});
  expect_error<ValueError>([] { MultiheadAttention({.embed_dim = 6, .num_heads = 2, .dropout = -1}); },
                           {"dropout", "-1"});
  expect_error<ValueError>([] { MultiheadAttention({.embed_dim = 6, .num_heads = 2, .kdim = -1}); },
                           {"kdim", "-1"});
  MultiheadAttention m({.embed_dim = 6, .num_heads = 2});
  const Tensor x = ones({4, 3, 6});
  expect_error<ShapeError>([&] { m(x, ones({4, 3, 5}), x); }, {"[MultiheadAttention]", "f32[4,3,5]"});
  expect_error<ShapeError>([&] { m(x, ones({5, 3, 6}), x); }, {"f32[5,3,6]", "f32[4,3,6]"});
  expect_error<ShapeError>([&] { m(x, ones({4, 2, 6}), ones({4, 2, 6})); }, {"f32[4,2,6]"});
  expect_error<ShapeError>(
      [&] {
        m(x, x, x, {.attn_mask = ones({4, 5})});
      },
      {"attn_mask", "[4,4]", "[6,4,4]", "f32[4,5]"});
  expect_error<ShapeError>(
      [&] {
        m(x, x, x, {.key_padding_mask = ones({4, 3})});
      },
      {"key_padding_mask", "[3,4]", "f32[4,3]"});
  expect_error<ValueError>(
      [] { nn::TransformerEncoderLayer({.d_model = 4, .nhead = 2, .dim_feedforward = 0}); },
      {"[TransformerEncoderLayer]", "dim_feedforward", "0"});
  expect_error<ValueError>(
      [] { nn::TransformerEncoder({.layer = {.d_model = 4, .nhead = 2}, .num_layers = 0}); },
      {"[TransformerEncoder]", "num_layers", "0"});
}

TEST(LayerErrors, OfNormalizations) {
  expect_error<ValueError>([] { nn::LayerNorm({.shape = 0}); }, {"[LayerNorm]", "[0]"});
  expect_error<ValueError>([] { nn::RMSNorm({.shape = Shape{}}); }, {"[RMSNorm]", "[]"});
  expect_error<ValueError>([] { nn::GroupNorm({.groups = 3, .channels = 4}); },
                           {"[GroupNorm]", "groups 3, channels 4"});
  expect_error<ValueError>([] { nn::InstanceNorm1d({.features = 0}); }, {"[InstanceNorm]", "0"});
  expect_error<ShapeError>([] { nn::LayerNorm({.shape = 3})(ones({2, 4})); }, {"f32[2,4]"});
  expect_error<ShapeError>(
      [] {
        nn::GroupNorm({.groups = 2, .channels = 4})(ones({2, 6, 3}));
      },
      {"[GroupNorm]", "[N,4,...]", "f32[2,6,3]"});
  expect_error<ShapeError>(
      [] {
        nn::InstanceNorm2d({.features = 4})(ones({2, 3, 4, 4}));
      },
      {"[InstanceNorm2d]", "[N,4,H,W]", "f32[2,3,4,4]"});
  expect_error<ShapeError>(
      [] {
        nn::BatchNorm3d({.features = 4})(ones({2, 4, 4, 4}));
      },
      {"[BatchNorm3d]", "[N,4,D,H,W]"});
  expect_error<ValueError>([] { nn::LocalResponseNorm({.size = 0})(ones({2, 3, 4})); }, {"0"});
}

TEST(LayerErrors, OfConvolutions) {
  expect_error<ValueError>([] { nn::Conv1d({.in = 2, .out = 2, .kernel = 0}); },
                           {"[Conv1d]", "in 2, out 2, kernel 0"});
  expect_error<ValueError>([] { nn::Conv3d({.in = 2, .out = 3, .kernel = 1, .groups = 2}); },
                           {"[Conv3d]", "out 3, groups 2"});
  expect_error<ValueError>([] { nn::ConvTranspose2d({.in = 3, .out = 2, .kernel = 1, .groups = 2}); },
                           {"[ConvTranspose2d]", "in 3, out 2, groups 2"});
  expect_error<ShapeError>(
      [] {
        nn::Conv1d({.in = 2, .out = 2, .kernel = 1})(ones({1, 3, 4}));
      },
      {"f32[1,3,4]"});
  const auto padded = [](nn::PaddingMode mode, int64_t n) {
    return [=] {
      nn::Conv2d({.in = 1, .out = 1, .kernel = 3, .padding = 3, .padding_mode = mode})(ones({1, 1, 8, n}));
    };
  };
  expect_error<ShapeError>(padded(nn::PaddingMode::kReflect, 3),
                           {"[Conv2d]", "padding 3", "dim 3", "f32[1,1,8,3]"});
  expect_error<ShapeError>(padded(nn::PaddingMode::kCircular, 2), {"[Conv2d]", "padding 3", "f32[1,1,8,2]"});
  expect_error<ShapeError>(padded(nn::PaddingMode::kReplicate, 0), {"[Conv2d]", "padding 3", "f32[1,1,8,0]"});
}

TEST(LayerErrors, OfPooling) {
  expect_error<ShapeError>([] { nn::MaxPool1d({.kernel = 2})(ones({2, 2, 3, 3})); }, {"f32[2,2,3,3]"});
  expect_error<ShapeError>([] { nn::AvgPool2d({.kernel = 4})(ones({1, 2, 3, 3})); }, {"f32[1,2,3,3]"});
  expect_error<ValueError>([] { nn::AdaptiveAvgPool3d({.output = 0})(ones({1, 2, 3, 3, 3})); }, {"0"});
}

TEST(LayerErrors, OfImageLayers) {
  expect_error<ShapeError>(
      [] {
        nn::ZeroPad2d({.padding = 1})(ones({2, 3}));
      },
      {"[ZeroPad2d]", "4 dims", "f32[2,3]"});
  expect_error<ValueError>([] { nn::ReflectionPad1d({.padding = 4})(ones({1, 2, 3})); }, {"4"});
  expect_error<ValueError>([] { nn::Upsample()(ones({1, 1, 2, 2})); }, {"size"});
  expect_error<ShapeError>([] { nn::PixelShuffle({.factor = 2})(ones({1, 3, 2, 2})); }, {"f32[1,3,2,2]"});
}

TEST(LayerErrors, OfActivations) {
  expect_error<ValueError>([] { nn::PReLU({.num_parameters = 0}); }, {"[PReLU]", "0"});
  expect_error<ShapeError>([] { nn::PReLU({.num_parameters = 3})(ones({2, 4})); }, {"[3]"});
  expect_error<ValueError>([] { nn::RReLU({.lower = 2, .upper = 1})(ones({1})); }, {"[RReLU]", "2 and 1"});
  expect_error<ShapeError>([] { nn::Softmax2d()(ones({2, 3})); }, {"[Softmax2d]", "f32[2,3]"});
  expect_error<ShapeError>([] { nn::GLU()(ones({2, 3})); }, {"3"});
}

TEST(LayerErrors, OfTheOthers) {
  expect_error<ValueError>([] { nn::Embedding({.num_embeddings = 0, .embedding_dim = 2}); },
                           {"[Embedding]", "0 and 2"});
  expect_error<ValueError>([] { nn::Embedding({.num_embeddings = 4, .embedding_dim = 2, .padding_idx = 4}); },
                           {"[Embedding]", "padding_idx", "4"});
  expect_error<IndexError>([] { nn::Embedding({.num_embeddings = 1, .embedding_dim = 2})(indices()); },
                           {"1"});
  expect_error<ValueError>([] { nn::Bilinear({.in1 = 0, .in2 = 1, .out = 2}); }, {"[Bilinear]", "0, 1, 2"});
  expect_error<ShapeError>(
      [] {
        nn::Bilinear({.in1 = 3, .in2 = 1, .out = 2})(ones({2, 3}), ones({3, 1}));
      },
      {"[Bilinear]", "f32[2,3]", "f32[3,1]"});
  expect_error<ShapeError>(
      [] {
        nn::Unflatten({.dim = 1, .sizes = {2, 2}})(ones({1, 6}));
      },
      {"[Unflatten]", "[2,2]", "6"});
  expect_error<ShapeError>(
      [] {
        nn::Unflatten({.dim = 1, .sizes = {-1, -1}})(ones({1, 6}));
      },
      {"[Unflatten]", "[-1,-1]"});
  expect_error<IndexError>(
      [] {
        nn::Unflatten({.dim = 2, .sizes = {2, 3}})(ones({1, 6}));
      },
      {"[Unflatten]", "2"});
  expect_error<ShapeError>(
      [] {
        nn::ChannelShuffle({.groups = 4})(ones({1, 6}));
      },
      {"[ChannelShuffle]", "4", "f32[1,6]"});
  expect_error<ValueError>(
      [] {
        nn::ChannelShuffle({.groups = 0})(ones({1, 6}));
      },
      {"[ChannelShuffle]", "0"});
  expect_error<ShapeError>(
      [] {
        nn::MinibatchStdDev()(ones({6, 2, 2, 2}));
      },
      {"[MinibatchStdDev]", "f32[6,2,2,2]"});
  expect_error<ValueError>(
      [] {
        nn::MinibatchStdDev({.group_size = 0})(ones({6, 2, 2, 2}));
      },
      {"[MinibatchStdDev]", "0"});
}

TEST(LayerErrors, OfBlocksOfGANs) {
  expect_error<ShapeError>([] { nn::PixelNorm()(ones({6})); }, {"[PixelNorm]", "f32[6]"});
  expect_error<ValueError>([] { nn::UpConv2d({.in = 0, .out = 2}); }, {"[UpConv2d]", "0 and 2"});
  expect_error<ValueError>([] { nn::DownConv2d({.in = 2, .out = -1}); }, {"[DownConv2d]", "2 and -1"});
  expect_error<ShapeError>([] { nn::FirFilter2d()(ones({2, 3, 3})); }, {"[FirFilter2d]", "f32[2,3,3]"});
  expect_error<ValueError>(
      [] {
        nn::FirFilter2d({.taps = {1, -1}})(ones({1, 1, 3, 3}));
      },
      {"[FirFilter2d]", "2 taps of sum 0"});
  expect_error<ValueError>([] { nn::FirFilter2d({.up = 0})(ones({1, 1, 3, 3})); }, {"[FirFilter2d]", "up 0"});
  expect_error<ValueError>(
      [] {
        nn::FirFilter2d({.padding = {1}})(ones({1, 1, 3, 3}));
      },
      {"[FirFilter2d]", "[1]"});
  expect_error<ValueError>([] { nn::BiasLeakyReLU({.channels = 0}); }, {"[BiasLeakyReLU]", "0"});
  expect_error<ValueError>([] { nn::BiasLeakyReLU({.channels = 1, .clamp = 0}); }, {"clamp", "0"});
  expect_error<ShapeError>(
      [] {
        nn::BiasLeakyReLU({.channels = 3})(ones({2, 4}));
      },
      {"[BiasLeakyReLU]", "[N,3]", "f32[2,4]"});
  expect_error<ValueError>([] { nn::NoiseInjection({.channels = 0}); }, {"[NoiseInjection]", "0"});
  nn::NoiseInjection noise;
  expect_error<ShapeError>([&] { noise(ones({2, 4})); }, {"[NoiseInjection]", "f32[2,4]"});
  expect_error<ShapeError>(
      [&] {
        noise.forward(ones({2, 1, 4, 4}), ones({2, 1, 4, 3}));
      },
      {"[NoiseInjection]", "f32[2,1,4,3]"});
  noise.mode = nn::NoiseMode::kFixed;
  expect_error<StateError>([&] { noise(ones({2, 1, 4, 4})); }, {"[NoiseInjection]", "size"});
  nn::AdaptiveInstanceNorm norm({.channels = 3, .style = 4});
  expect_error<ShapeError>(
      [&] {
        norm(ones({2, 4, 2, 2}), ones({2, 4}));
      },
      {"[AdaptiveInstanceNorm]", "f32[2,4,2,2]"});
  expect_error<ShapeError>(
      [&] {
        norm(ones({2, 3, 2, 2}), ones({1, 4}));
      },
      {"[AdaptiveInstanceNorm]", "f32[1,4]"});
}

TEST(LayerErrors, OfReparametrizations) {
  nn::Linear linear({.in = 3, .out = 4, .bias = false});
  expect_error<ValueError>([&] { nn::spectral_norm(linear, {.name = "bias"}); },
                           {"[spectral_norm]", "Linear", "'bias'"});
  expect_error<ValueError>([&] { nn::spectral_norm(linear, {.n_power_iterations = 0}); },
                           {"n_power_iterations", "0"});
  expect_error<ValueError>([&] { nn::equalized_lr(linear, {.lr_mul = 0}); },
                           {"[equalized_lr]", "lr_mul", "0"});
  expect_error<ValueError>([&] { nn::weight_norm(linear, {.name = "w"}); }, {"[weight_norm]", "'w'"});
  nn::spectral_norm(linear);
  expect_error<ValueError>([&] { nn::spectral_norm(linear); }, {"[spectral_norm]", "'weight'"});
}

struct Net final : nn::Module {
  nn::LSTM lstm{this, "lstm", {.input_size = 3, .hidden_size = 4}};
};

TEST(LayerErrors, SayWhereInTheTreeTheyHappened) {
  Net net;
  expect_error<ShapeError>([&] { net.lstm(ones({2, 5, 4})); }, {"lstm"});
}

}  // namespace
}  // namespace gradus
