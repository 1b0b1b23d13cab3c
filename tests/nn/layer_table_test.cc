// Every layer and loss of nn/, in every dtype, mixed precision, training and evaluation, on both kinds of CPU
// devices, with few rows and none: what PyTorch takes does not throw, and values, gradients and running state
// are those of f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

constexpr int64_t kRows = -1;

struct Row {
  std::string name;  // the class, then what is special: "BatchNorm1d/lines"
  Shape shape;       // of x; kRows where the rows go
  std::function<std::unique_ptr<nn::Module>()> make;
  std::function<Tensor(nn::Module&, const Tensor& x)> call;
  // How many roundings lie one behind the other on the way to a value or a gradient, counting each by how
  // much what comes behind can make of it.
  double roundings = 8;
  bool takes_indices = false;
};

// A layer that maps one tensor to one.
template <class L> Row layer(std::string name, Shape shape, typename L::Options options = {}) {
  return {std::move(name), std::move(shape), [options] { return std::make_unique<L>(options); },
          [](nn::Module& m, const Tensor& x) { return dynamic_cast<nn::Layer&>(m)(x); }};
}
Row with_roundings(Row row, double n) {
  row.roundings = n;
  return row;
}
// One with calls of its own.
template <class M, class F>
Row module(std::string name, Shape shape, double roundings, typename M::Options options, F call) {
  return {std::move(name), std::move(shape), [options] { return std::make_unique<M>(options); },
          [call](nn::Module& m, const Tensor& x) { return call(dynamic_cast<M&>(m), x); }, roundings};
}
Row normalized(std::string name, void (*change)(nn::Linear&), double roundings) {
  return {std::move(name),
          {kRows, 8},
          [change] {
            auto layer = std::make_unique<nn::Linear>(nn::LinearOptions{.in = 8, .out = 5});
            change(*layer);
            return layer;
          },
          [](nn::Module& m, const Tensor& x) { return dynamic_cast<nn::Layer&>(m)(x); },
          roundings};
}
// All of them in one row of numbers, so that no part of a result goes unseen.
Tensor joined(const std::vector<Tensor>& parts) {
  std::vector<Tensor> flat;
  for (const Tensor& t : parts) flat.push_back(reshape(to(t, DType::kF64), {-1}));
  return cat(flat, 0);
}
// A loss of x, whose further arguments are made for it.
template <class L, class F> Row loss(std::string name, typename L::Options options, F arguments) {
  options.reduction = Reduction::kSum;
  return {std::move(name),
          {kRows, 8},
          [] { return std::make_unique<nn::Identity>(); },
          [options, arguments](nn::Module&, const Tensor& x) {
            return std::apply([&](const auto&... a) { return L(options)(a...); }, arguments(x));
          },
          16};
}

// Numbers that bf16 and f16 have, [-2, 2) in an order of their own; the same for every dtype and device.
Tensor pattern(const Shape& shape, uint64_t seed) {
  return raw::to(raw::to(raw::to(random_tensor(shape, DType::kF64, seed) * 2.0, DType::kF16), DType::kBF16),
                 DType::kF64);
}
Tensor like(const Tensor& values, const Tensor& x) { return raw::to(raw::to(values, x.dtype()), x.device()); }

// Targets.
Tensor numbers(const Tensor& x) { return like(pattern(x.shape(), 21), x); }
Tensor shares(const Tensor& x) { return like(abs(pattern(x.shape(), 22)) * 0.5, x); }
Tensor signs(const Tensor& x, const Shape& shape) {
  const Tensor p = pattern(shape, 23);
  return like(where(gt(p, 0.0), ones_like(p), full_like(p, -1)), x);
}
Tensor classes(const Tensor& x) {
  return raw::to(raw::to(abs(pattern({x.size(0)}, 24)) * 3.9, DType::kI64), x.device());
}

std::vector<Row> losses() {
  using std::tuple;
  const auto to_numbers = [](const Tensor& x) { return tuple(x, numbers(x)); };
  const auto to_shares = [](const Tensor& x) { return tuple(x, shares(x)); };
  const auto to_signs = [](const Tensor& x) { return tuple(x, signs(x, x.shape())); };
  const auto to_classes = [](const Tensor& x) { return tuple(x, classes(x)); };
  const auto triplet = [](const Tensor& x) { return tuple(x, numbers(x), like(pattern(x.shape(), 25), x)); };
  return {
      loss<nn::MSELoss>("MSELoss", {}, to_numbers),
      loss<nn::L1Loss>("L1Loss", {}, to_numbers),
      loss<nn::SmoothL1Loss>("SmoothL1Loss", {}, to_numbers),
      loss<nn::HuberLoss>("HuberLoss", {}, to_numbers),
      loss<nn::PoissonNLLLoss>("PoissonNLLLoss", {}, to_shares),
      loss<nn::KLDivLoss>("KLDivLoss", {}, to_shares),
      loss<nn::BCEWithLogitsLoss>("BCEWithLogitsLoss", {}, to_shares),
      loss<nn::BCELoss>("BCELoss", {}, [](const Tensor& x) { return tuple(sigmoid(x), shares(x)); }),
      loss<nn::SoftMarginLoss>("SoftMarginLoss", {}, to_signs),
      loss<nn::HingeEmbeddingLoss>("HingeEmbeddingLoss", {}, to_signs),
      loss<nn::MultiLabelSoftMarginLoss>("MultiLabelSoftMarginLoss", {}, to_shares),
      loss<nn::CrossEntropyLoss>("CrossEntropyLoss", {}, to_classes),
      loss<nn::NLLLoss>("NLLLoss", {}, to_classes),
      loss<nn::MultiMarginLoss>("MultiMarginLoss", {.margin = 8},
                                to_classes),  // no rounding reaches its kinks
      loss<nn::GaussianNLLLoss>("GaussianNLLLoss", {},
                                [](const Tensor& x) { return tuple(x, numbers(x), shares(x) + 0.5); }),
      loss<nn::MarginRankingLoss>("MarginRankingLoss", {},
                                  [](const Tensor& x) { return tuple(x, numbers(x), signs(x, x.shape())); }),
      loss<nn::CosineEmbeddingLoss>(
          "CosineEmbeddingLoss", {},
          [](const Tensor& x) { return tuple(x, numbers(x), signs(x, {x.size(0)})); }),
      loss<nn::TripletMarginLoss>("TripletMarginLoss", {}, triplet),
      loss<nn::TripletMarginWithDistanceLoss>("TripletMarginWithDistanceLoss", {}, triplet),
      {"CosineSimilarity",
       {kRows, 8},
       [] { return std::make_unique<nn::Identity>(); },
       [](nn::Module&, const Tensor& x) { return nn::CosineSimilarity()(x, numbers(x)); }},
      {"PairwiseDistance",
       {kRows, 8},
       [] { return std::make_unique<nn::Identity>(); },
       [](nn::Module&, const Tensor& x) { return nn::PairwiseDistance()(x, numbers(x)); }},
  };
}

std::vector<Row> table() {
  const Shape flat{kRows, 8}, lines{kRows, 4, 8}, images{kRows, 4, 6, 6}, volumes{kRows, 4, 4, 4, 4},
      sequence{5, kRows, 6};
  const auto recurrent = [](auto& m, const Tensor& x) {
    const auto [y, h] = m(x);
    return joined({y, h});
  };
  std::vector<Row> rows{
      layer<nn::ReLU>("ReLU", flat),
      layer<nn::ReLU6>("ReLU6", flat),
      layer<nn::Sigmoid>("Sigmoid", flat),
      layer<nn::LogSigmoid>("LogSigmoid", flat),
      layer<nn::Tanh>("Tanh", flat),
      layer<nn::Tanhshrink>("Tanhshrink", flat),
      layer<nn::Softsign>("Softsign", flat),
      layer<nn::SiLU>("SiLU", flat),
      layer<nn::Mish>("Mish", flat),
      layer<nn::SELU>("SELU", flat),
      layer<nn::Hardsigmoid>("Hardsigmoid", flat),
      layer<nn::Hardswish>("Hardswish", flat),
      layer<nn::LeakyReLU>("LeakyReLU", flat),
      layer<nn::PReLU>("PReLU", flat, {.num_parameters = 8}),
      layer<nn::RReLU>("RReLU", flat, {.lower = 0.25, .upper = 0.25}),  // f64 draws other numbers than f32
      layer<nn::ELU>("ELU", flat),
      layer<nn::CELU>("CELU", flat),
      layer<nn::GELU>("GELU", flat),
      layer<nn::GELU>("GELU/tanh", flat, {.approximate = Gelu::kTanh}),
      layer<nn::Softplus>("Softplus", flat),
      layer<nn::Hardtanh>("Hardtanh", flat),
      layer<nn::Hardshrink>("Hardshrink", flat),
      layer<nn::Softshrink>("Softshrink", flat),
      layer<nn::Threshold>("Threshold", flat, {.threshold = 0.125, .value = 0.5}),
      layer<nn::GLU>("GLU", flat),
      layer<nn::Softmax>("Softmax", flat, {.dim = 1}),
      layer<nn::Softmin>("Softmin", flat, {.dim = 1}),
      layer<nn::LogSoftmax>("LogSoftmax", flat, {.dim = 1}),
      layer<nn::Softmax2d>("Softmax2d", images),
      layer<nn::Dropout>("Dropout", flat),
      layer<nn::Dropout1d>("Dropout1d", lines),
      layer<nn::Dropout2d>("Dropout2d", images),
      layer<nn::Dropout3d>("Dropout3d", volumes),
      layer<nn::AlphaDropout>("AlphaDropout", flat),
      layer<nn::FeatureAlphaDropout>("FeatureAlphaDropout", images),
      layer<nn::Flatten>("Flatten", images),
      layer<nn::Unflatten>("Unflatten", flat, {.dim = 1, .sizes = {2, 4}}),
      layer<nn::Identity>("Identity", flat),
      layer<nn::ChannelShuffle>("ChannelShuffle", images, {.groups = 2}),
      layer<nn::Linear>("Linear", flat, {.in = 8, .out = 5}),
      layer<nn::Conv1d>("Conv1d", lines, {.in = 4, .out = 6, .kernel = 3}),
      layer<nn::Conv2d>("Conv2d", images, {.in = 4, .out = 6, .kernel = 3}),
      layer<nn::Conv2d>(
          "Conv2d/reflect", images,
          {.in = 4, .out = 6, .kernel = 3, .padding = 1, .padding_mode = nn::PaddingMode::kReflect}),
      layer<nn::Conv3d>("Conv3d", volumes, {.in = 4, .out = 6, .kernel = 3}),
      layer<nn::ConvTranspose1d>("ConvTranspose1d", lines, {.in = 4, .out = 6, .kernel = 3}),
      layer<nn::ConvTranspose2d>("ConvTranspose2d", images, {.in = 4, .out = 6, .kernel = 3}),
      layer<nn::ConvTranspose3d>("ConvTranspose3d", volumes, {.in = 4, .out = 6, .kernel = 3}),
      layer<nn::BatchNorm1d>("BatchNorm1d", flat, {.features = 8}),
      layer<nn::BatchNorm1d>("BatchNorm1d/lines", lines, {.features = 4}),
      layer<nn::BatchNorm2d>("BatchNorm2d", images, {.features = 4}),
      layer<nn::BatchNorm2d>("BatchNorm2d/cumulative", images, {.features = 4, .momentum = std::nullopt}),
      layer<nn::BatchNorm2d>("BatchNorm2d/plain", images,
                             {.features = 4, .affine = false, .track_running_stats = false}),
      layer<nn::BatchNorm3d>("BatchNorm3d", volumes, {.features = 4}),
      module<nn::BatchNorm2d>("BatchNorm2d/relu", images, 8, {.features = 4},
                              [](auto& m, const Tensor& x) { return m.relu(x); }),
      module<nn::BatchNorm2d>(
          "BatchNorm2d/add_relu", images, 8, {.features = 4},
          [](auto& m, const Tensor& x) {  // sums that no rounding brings to the other side of 0
            return m.add_relu(x, x * 0.5 + signs(x, x.shape()) * 8.0);
          }),
      layer<nn::InstanceNorm1d>("InstanceNorm1d", lines,
                                {.features = 4, .affine = true, .track_running_stats = true}),
      layer<nn::InstanceNorm2d>("InstanceNorm2d", images,
                                {.features = 4, .affine = true, .track_running_stats = true}),
      layer<nn::InstanceNorm2d>("InstanceNorm2d/plain", images, {.features = 4}),
      layer<nn::InstanceNorm3d>("InstanceNorm3d", volumes,
                                {.features = 4, .affine = true, .track_running_stats = true}),
      layer<nn::LayerNorm>("LayerNorm", flat, {.shape = 8}),
      layer<nn::RMSNorm>("RMSNorm", flat, {.shape = 8}),
      layer<nn::GroupNorm>("GroupNorm", images, {.groups = 2, .channels = 4}),
      layer<nn::LocalResponseNorm>("LocalResponseNorm", images, {.size = 2}),
      layer<nn::MinibatchStdDev>("MinibatchStdDev", images),
      layer<nn::PixelNorm>("PixelNorm", images),
      layer<nn::UpConv2d>("UpConv2d", images, {.in = 4, .out = 3}),
      layer<nn::DownConv2d>("DownConv2d", images, {.in = 4, .out = 3}),
      layer<nn::FirFilter2d>("FirFilter2d", images, {.padding = {2, 1}}),
      layer<nn::FirFilter2d>("FirFilter2d/up", images, {.up = 2, .padding = {2, 1}, .gain = 4}),
      layer<nn::BiasLeakyReLU>("BiasLeakyReLU", images, {.channels = 4}),
      module<nn::NoiseInjection>("NoiseInjection", images, 8, {.size = 6},
                                 [](nn::NoiseInjection& m, const Tensor& x) {
                                   m.mode = nn::NoiseMode::kFixed;
                                   return m(x);
                                 }),
      module<nn::AdaptiveInstanceNorm>("AdaptiveInstanceNorm", images, 64, {.channels = 4, .style = 6},
                                       [](nn::AdaptiveInstanceNorm& m, const Tensor& x) {
                                         return m(x, like(pattern({x.size(0), 6}, 31), x));
                                       }),
      layer<nn::MaxPool1d>("MaxPool1d", lines, {.kernel = 2}),
      layer<nn::MaxPool2d>("MaxPool2d", images, {.kernel = 2}),
      layer<nn::MaxPool3d>("MaxPool3d", volumes, {.kernel = 2}),
      layer<nn::AvgPool1d>("AvgPool1d", lines, {.kernel = 2}),
      layer<nn::AvgPool2d>("AvgPool2d", images, {.kernel = 2}),
      layer<nn::AvgPool3d>("AvgPool3d", volumes, {.kernel = 2}),
      layer<nn::LPPool1d>("LPPool1d", lines, {.p = 2, .kernel = 2}),
      layer<nn::LPPool2d>("LPPool2d", images, {.p = 2, .kernel = 2}),
      layer<nn::AdaptiveAvgPool1d>("AdaptiveAvgPool1d", lines, {.output = 3}),
      layer<nn::AdaptiveAvgPool2d>("AdaptiveAvgPool2d", images, {.output = {3, 2}}),
      layer<nn::AdaptiveAvgPool3d>("AdaptiveAvgPool3d", volumes, {.output = {2, 1, 3}}),
      layer<nn::AdaptiveMaxPool1d>("AdaptiveMaxPool1d", lines, {.output = 3}),
      layer<nn::AdaptiveMaxPool2d>("AdaptiveMaxPool2d", images, {.output = {3, 2}}),
      layer<nn::AdaptiveMaxPool3d>("AdaptiveMaxPool3d", volumes, {.output = {2, 1, 3}}),
      layer<nn::ConstantPad1d>("ConstantPad1d", lines, {.padding = 1, .value = 2}),
      layer<nn::ConstantPad2d>("ConstantPad2d", images, {.padding = 1, .value = 2}),
      layer<nn::ConstantPad3d>("ConstantPad3d", volumes, {.padding = 1, .value = 2}),
      layer<nn::ZeroPad1d>("ZeroPad1d", lines, {.padding = 1}),
      layer<nn::ZeroPad2d>("ZeroPad2d", images, {.padding = 1}),
      layer<nn::ZeroPad3d>("ZeroPad3d", volumes, {.padding = 1}),
      layer<nn::ReflectionPad1d>("ReflectionPad1d", lines, {.padding = 1}),
      layer<nn::ReflectionPad2d>("ReflectionPad2d", images, {.padding = 1}),
      layer<nn::ReflectionPad3d>("ReflectionPad3d", volumes, {.padding = 1}),
      layer<nn::ReplicationPad1d>("ReplicationPad1d", lines, {.padding = 1}),
      layer<nn::ReplicationPad2d>("ReplicationPad2d", images, {.padding = 1}),
      layer<nn::ReplicationPad3d>("ReplicationPad3d", volumes, {.padding = 1}),
      layer<nn::Upsample>("Upsample", images, {.scale_factor = {2}, .mode = Interpolation::kBilinear}),
      layer<nn::PixelShuffle>("PixelShuffle", images, {.factor = 2}),
      layer<nn::PixelUnshuffle>("PixelUnshuffle", images, {.factor = 2}),
      layer<nn::Unfold>("Unfold", images, {.kernel = 2}),
      layer<nn::Fold>("Fold", {kRows, 8, 4}, {.output = 4, .kernel = 2, .stride = 2}),
      module<nn::Bilinear>("Bilinear", flat, 16, {.in1 = 8, .in2 = 8, .out = 3},
                           [](auto& m, const Tensor& x) { return m(x, x); }),
      module<nn::RNN>("RNN", sequence, 64, {.input_size = 6, .hidden_size = 4}, recurrent),
      module<nn::LSTM>("LSTM", sequence, 64,
                       {.input_size = 6, .hidden_size = 4, .num_layers = 2, .bidirectional = true},
                       [](auto& m, const Tensor& x) {
                         const auto [y, state] = m(x);
                         return joined({y, state.h, state.c});
                       }),
      module<nn::GRU>("GRU", sequence, 64, {.input_size = 6, .hidden_size = 4}, recurrent),
      module<nn::RNNCell>("RNNCell", flat, 16, {.input_size = 8, .hidden_size = 4},
                          [](auto& m, const Tensor& x) { return m(x); }),
      module<nn::LSTMCell>("LSTMCell", flat, 16, {.input_size = 8, .hidden_size = 4},
                           [](auto& m, const Tensor& x) {
                             const auto [h, c] = m(x);
                             return joined({h, c});
                           }),
      module<nn::GRUCell>("GRUCell", flat, 16, {.input_size = 8, .hidden_size = 4},
                          [](auto& m, const Tensor& x) { return m(x); }),
      module<nn::MultiheadAttention>("MultiheadAttention", sequence, 32, {.embed_dim = 6, .num_heads = 2},
                                     [](auto& m, const Tensor& x) {
                                       const auto r = m(x, x, x);
                                       return joined({r.output, r.weights});
                                     }),
      module<nn::MultiheadAttention>(
          "MultiheadAttention/masks", sequence, 32,
          {.embed_dim = 6, .num_heads = 2, .add_bias_kv = true, .add_zero_attn = true},
          [](auto& m, const Tensor& x) {
            const Tensor padding = gt(pattern({x.size(1), 5}, 31), 1.0);
            const auto r = m(x, x, x,
                             {.key_padding_mask = raw::to(padding, x.device()),
                              .attn_mask = like(pattern({5, 5}, 32), x)});
            return joined({r.output, r.weights});
          }),
      module<nn::MultiheadAttention>(
          "MultiheadAttention/sizes", sequence, 32, {.embed_dim = 6, .num_heads = 2, .kdim = 4, .vdim = 3},
          [](auto& m, const Tensor& x) {
            const auto r = m(x, narrow(x, -1, 0, 4), narrow(x, -1, 3, 3), {.causal = true});
            return joined({r.output, r.weights});
          }),
      module<nn::TransformerEncoderLayer>(
          "TransformerEncoderLayer/masks", sequence, 64,
          {.d_model = 6,
           .nhead = 2,
           .dim_feedforward = 8,
           .dropout = 0,
           .activation = nn::TransformerActivation::kGELU,
           .norm_first = true},
          [](auto& m, const Tensor& x) {
            return m(x, {.mask = like(pattern({5, 5}, 32), x), .causal = true});
          }),
      module<nn::LSTM>(
          "LSTM/state", sequence, 64, {.input_size = 6, .hidden_size = 4, .proj_size = 2},
          [](auto& m, const Tensor& x) {
            const int64_t n = x.size(1);
            const auto [y, state] = m(x, {like(pattern({1, n, 2}, 33), x), like(pattern({1, n, 4}, 34), x)});
            return joined({y, state.h, state.c});
          }),
      module<nn::GRU>("GRU/state", sequence, 64, {.input_size = 6, .hidden_size = 4},
                      [](auto& m, const Tensor& x) {
                        const auto [y, h] = m(x, like(pattern({1, x.size(1), 4}, 33), x));
                        return joined({y, h});
                      }),
      module<nn::LSTMCell>("LSTMCell/state", flat, 16, {.input_size = 8, .hidden_size = 4},
                           [](auto& m, const Tensor& x) {
                             const int64_t n = x.size(0);
                             const auto [h, c] =
                                 m(x, {like(pattern({n, 4}, 33), x), like(pattern({n, 4}, 34), x)});
                             return joined({h, c});
                           }),
      layer<nn::LayerNorm>("LayerNorm/plain", flat, {.shape = 8, .affine = false}),
      layer<nn::GroupNorm>("GroupNorm/plain", images, {.groups = 2, .channels = 4, .affine = false}),
      with_roundings(
          layer<nn::Upsample>("Upsample/bicubic", images, {.size = {5, 9}, .mode = Interpolation::kBicubic}),
          64),  // places within a cell are f32 for f32, and weights polynomials of them
      normalized(
          "weight_norm/whole", [](nn::Linear& l) { nn::weight_norm(l, {.dim = std::nullopt}); }, 16),
      with_roundings(layer<nn::TransformerEncoderLayer>("TransformerEncoderLayer", sequence,
                                                        {.d_model = 6,
                                                         .nhead = 2,
                                                         .dim_feedforward = 8,
                                                         .dropout = 0,
                                                         .activation = nn::TransformerActivation::kGELU}),
                     64),
      with_roundings(layer<nn::TransformerEncoder>("TransformerEncoder", sequence,
                                                   {.layer = {.d_model = 6,
                                                              .nhead = 2,
                                                              .dim_feedforward = 8,
                                                              .dropout = 0,
                                                              .activation = nn::TransformerActivation::kGELU},
                                                    .num_layers = 2}),
                     128),
      {"Sequential", flat,
       [] {
         auto net = std::make_unique<nn::Sequential>();
         net->add<nn::Linear>({.in = 8, .out = 5}), net->add<nn::Tanh>();
         return net;
       },
       [](nn::Module& m, const Tensor& x) { return dynamic_cast<nn::Layer&>(m)(x); }, 16},
      normalized(
          "spectral_norm", [](nn::Linear& l) { nn::spectral_norm(l); }, 64),
      normalized(
          "weight_norm", [](nn::Linear& l) { nn::weight_norm(l); }, 16),
      normalized(
          "equalized_lr", [](nn::Linear& l) { nn::equalized_lr(l); }, 16),
  };
  for (Row row : {layer<nn::Embedding>("Embedding", {kRows, 3}, {.num_embeddings = 10, .embedding_dim = 4}),
                  layer<nn::Embedding>("Embedding/max_norm", {kRows, 3},
                                       {.num_embeddings = 10, .embedding_dim = 4, .max_norm = 0.5})}) {
    row.takes_indices = true;
    rows.push_back(std::move(row));
  }
  for (Row& row : losses()) rows.push_back(std::move(row));
  return rows;
}

struct Mode {
  const char* name;
  DType parameters, input;
  std::optional<DType> autocast;
  double unit() const {  // the largest relative error of a rounding
    switch (autocast.value_or(parameters)) {
      case DType::kBF16:
        return 0x1p-8;
      case DType::kF16:
        return 0x1p-11;
      case DType::kF32:
        return 0x1p-24;
      default:
        return 0x1p-53;
    }
  }
};
const Mode kModes[] = {
    {"f64", DType::kF64, DType::kF64},
    {"f32", DType::kF32, DType::kF32},
    {"bf16", DType::kBF16, DType::kBF16},
    {"f16", DType::kF16, DType::kF16},
    {"autocast bf16", DType::kF32, DType::kF32, DType::kBF16},
    {"autocast f16", DType::kF32, DType::kF32, DType::kF16},
    {"autocast bf16, behind a layer", DType::kF32, DType::kBF16, DType::kBF16},
    {"autocast f16, behind a layer", DType::kF32, DType::kF16, DType::kF16},
};

struct Outcome {
  std::string error;
  DType dtype = DType::kF64;  // of the result
  std::vector<std::pair<std::string, Tensor>> tensors;
};

Outcome run(const Row& row, const Mode& mode, bool training, Device device, int64_t rows, double factor = 1) {
  manual_seed(1);
  const std::unique_ptr<nn::Module> net = row.make();
  uint64_t seed = 2;
  for (const Tensor& p : net->parameters()) raw::copy_(p, pattern(p.shape(), ++seed) * 0.5);
  for (const Tensor& b : net->buffers())
    if (is_floating(b.dtype())) raw::copy_(b, abs(pattern(b.shape(), ++seed)) + 0.5);
  net->to(mode.parameters).to(device).train(training);

  Shape shape = row.shape;
  for (int64_t& n : shape) n = n == kRows ? rows : n;
  Tensor x = raw::to(pattern(shape, 1) * factor, mode.input);
  if (row.takes_indices) x = raw::to(abs(pattern(shape, 1)) * 4.0, DType::kI64);
  x = raw::to(x, device);

  Outcome outcome;
  try {
    GradManager gm;
    gm.attach(net->parameters());
    if (!row.takes_indices) gm.attach(x);
    auto recording = gm.record();
    Tensor y;
    {
      std::optional<Autocast> amp;
      if (mode.autocast) amp.emplace(*mode.autocast);
      y = row.call(*net, x);
    }
    outcome.dtype = y.dtype();
    const Tensor wide = to(y, DType::kF64);
    gm.backward(sum(wide * raw::to(pattern(y.shape(), 7), device)));
    outcome.tensors.emplace_back("y", detach(wide));
  } catch (const Error& e) {
    outcome.error = e.what();
    return outcome;
  }
  if (!row.takes_indices) outcome.tensors.emplace_back("gradient of x", x.grad());
  for (const auto& [name, p] : net->named_parameters())
    outcome.tensors.emplace_back("gradient of " + name, p.grad());
  for (const auto& [name, b] : net->named_buffers()) outcome.tensors.emplace_back(name, b);
  for (const auto& [name, p] : net->named_parameters())
    if (p.grad().defined()) {
      EXPECT_EQ(p.grad().dtype(), p.dtype()) << name;
      EXPECT_EQ(p.grad().device(), device) << name;
    }
  return outcome;
}

// Largest difference, in multiples of what one rounding may cost.
double roundings_apart(const Tensor& got, const Tensor& want, double unit) {
  if (!got.defined() || !want.defined())
    return got.defined() == want.defined() ? 0 : std::numeric_limits<double>::infinity();
  if (!(got.shape() == want.shape())) return std::numeric_limits<double>::infinity();
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  double most = 0, scale = 1;  // terms are of about 1, also where they cancel
  for (const double v : b) scale = std::max(scale, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i)
    most =
        std::isfinite(a[i]) ? std::max(most, std::abs(a[i] - b[i])) : std::numeric_limits<double>::infinity();
  return most / (unit * scale);
}

// "BatchNorm1d train 1"
std::set<std::string> refused_by_pytorch() {
  std::ifstream file("tests/golden/layers/few_rows.txt");
  EXPECT_TRUE(file) << "few_rows.txt is missing";
  std::set<std::string> all;
  for (std::string line; std::getline(file, line);)
    if (line[0] != '#') all.insert(line);
  return all;
}
// Where that is an accident: its rules for no rows fail.
bool taken_here(const std::string& line) {
  return std::regex_match(line, std::regex("(InstanceNorm\\dd|PixelShuffle|PixelUnshuffle) (train|eval) 0"));
}

TEST(LayerTable, EveryLayerIsCloseToF64InEveryDtypeOnEveryDevice) {
  const std::set<std::string> refused = refused_by_pytorch();
  const Device other = Device::parse("cpu:1");
  for (const Row& row : table()) {
    for (const bool training : {true, false}) {
      for (const int64_t rows : {4, 1, 0}) {
        const std::string line = concat(row.name, training ? " train " : " eval ", rows);
        const bool refuses = refused.count(line) && !taken_here(line);
        const Outcome exact = run(row, kModes[0], training, kCPU, rows);
        for (const Mode& mode : kModes)
          for (const Device device : {kCPU, other}) {
            const Outcome outcome = run(row, mode, training, device, rows);
            const std::string where = concat(line, " rows, ", mode.name, " on ", device);
            EXPECT_EQ(!outcome.error.empty(), refuses) << where << ": " << outcome.error;
            if (!outcome.error.empty() || !exact.error.empty()) continue;
            if (!mode.autocast && outcome.dtype != DType::kF64) {
              EXPECT_EQ(outcome.dtype, mode.input) << where;
            }
            ASSERT_EQ(outcome.tensors.size(), exact.tensors.size()) << where;
            for (size_t i = 0; i < exact.tensors.size(); ++i) {
              const auto& [name, want] = exact.tensors[i];
              const Tensor& got = outcome.tensors[i].second;
              EXPECT_LE(roundings_apart(got, want, mode.unit()), row.roundings) << where << ": " << name;
              if (rows == 0 && name.starts_with("gradient") && got.defined()) {
                EXPECT_EQ(sum(abs(to(got, DType::kF64))).item<double>(), 0) << where << ": " << name;
              }
            }
          }
      }
    }
  }
}

// Where all is 0, numbers that guard a division must not be lost in 16 bits.
TEST(LayerTable, NothingButZerosGivesNumbersWhereF64Does) {
  for (const Row& row : table())
    for (const bool training : {true, false}) {
      const Outcome exact = run(row, kModes[0], training, kCPU, 4, 0);
      for (const Mode& mode : kModes) {
        const Outcome outcome = run(row, mode, training, kCPU, 4, 0);
        EXPECT_EQ(outcome.error, "") << row.name;
        for (size_t i = 0; i < outcome.tensors.size(); ++i) {
          const auto& [name, want] = exact.tensors[i];
          const Tensor& got = outcome.tensors[i].second;
          if (!want.defined()) continue;
          const auto a = got.to_vector<double>(), b = want.to_vector<double>();
          for (size_t k = 0; k < a.size(); ++k) {
            const bool fits = std::abs(b[k]) < 65504;  // the most that f16 has
            ASSERT_TRUE(!fits || std::isfinite(a[k]))
                << row.name << (training ? " train, " : " eval, ") << mode.name << ": " << name;
          }
        }
      }
    }
}

TEST(LayerTable, HoldsEveryLayerAndLossThatTheHeadersDeclare) {
  std::set<std::string> rows{"ModuleList", "ModuleDict", "ParameterList"};  // they hold what others call
  for (const Row& row : table()) rows.insert(row.name.substr(0, row.name.find('/')));
  // A class that nobody derives from, a loss's name, or what changes a layer.
  const std::regex declared(R"(^class (\w+) final : public|^using (\w+) = Loss<|^L& (\w+)\(L& layer)");
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("nn")) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream header(entry.path());
    for (std::string line; std::getline(header, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, declared)) continue;
      ++found;
      const std::string name = match.format("$1$2$3");
      EXPECT_TRUE(rows.count(name)) << name << " of " << entry.path() << " has no row in this table";
    }
  }
  EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace gradus
