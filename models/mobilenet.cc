// The blocks of MobileNetV3 and EfficientNet, as in torchvision, and the tables of both papers.
#include "gradus/models/mobilenet.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "gradus/autograd/ops/ops.h"

namespace gradus::models {
namespace {

using Function = Tensor (*)(const Tensor& x);

struct ConvNorm {
  int64_t in, out, kernel = 1, stride = 1, groups = 1;
};

// A network's activation and batch norms, and the layers made of them.
struct Style {
  nn::LayerFactory activation;
  Function squeeze, excite;  // of squeeze-and-excitation
  double eps, momentum;

  // Returns a Sequential of convolution, batch norm and, if `activated`, the activation.
  nn::LayerFactory conv(const ConvNorm& c, bool activated = true) const {
    std::vector layers{nn::layer<nn::Conv2d>({.in = c.in,
                                              .out = c.out,
                                              .kernel = c.kernel,
                                              .stride = c.stride,
                                              .padding = (c.kernel - 1) / 2,
                                              .groups = c.groups,
                                              .bias = false}),
                       nn::layer<nn::BatchNorm2d>({.features = c.out, .eps = eps, .momentum = momentum})};
    if (activated) layers.push_back(activation);
    return nn::layer<nn::Sequential>(layers);
  }
};

// Channels scaled by gates: y = x excite(fc2(squeeze(fc1(mean of x over H and W)))).
// Source: Hu et al., "Squeeze-and-excitation networks", CVPR 2018.
struct SqueezeExcitation final : nn::Layer {
  SqueezeExcitation(nn::Module* parent, std::string name, int64_t channels, int64_t squeezed, const Style& s)
      : Layer(parent, std::move(name)),
        fc1{this, "fc1", {.in = channels, .out = squeezed, .kernel = 1}},
        fc2{this, "fc2", {.in = squeezed, .out = channels, .kernel = 1}},
        squeeze(s.squeeze),
        excite(s.excite) {}
  Tensor forward(const Tensor& x) override {
    return excite(fc2(squeeze(fc1(adaptive_avg_pool2d(x, 1))))) * x;
  }
  nn::Conv2d fc1, fc2;
  Function squeeze, excite;
};

struct BlockSizes {
  int64_t in, kernel, expanded, out, squeezed, stride;  // squeezed = 0: without squeeze-and-excitation
  double drop = 0;                                      // probability of skipping the block for a sample
};

// y = f(x), and x + f(x) if both have one shape; f: 1x1 convolution to `expanded` channels, depthwise convolution,
// squeeze-and-excitation, 1x1 convolution.
// Source: Sandler et al., "MobileNetV2", CVPR 2018.
struct InvertedResidual final : nn::Layer {
  InvertedResidual(nn::Module* parent, std::string name, const BlockSizes& b, const Style& s)
      : Layer(parent, std::move(name)), residual(b.stride == 1 && b.in == b.out), drop(b.drop) {
    if (b.expanded != b.in) block.add(s.conv({b.in, b.expanded}));
    block.add(s.conv({b.expanded, b.expanded, b.kernel, b.stride, b.expanded}));
    if (b.squeezed > 0) block.add<SqueezeExcitation>(b.expanded, b.squeezed, s);
    block.add(s.conv({b.expanded, b.out}, false));
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = block(x);
    if (!residual) return y;
    if (drop > 0 && is_training())
      y = y * dropout(ones({x.size(0), 1, 1, 1}, {y.dtype(), y.device()}), drop, true);
    return std::move(y) + x;
  }
  bool residual;
  double drop;
  nn::Sequential block{this, "block"};
};

// Returns the multiple of 8 nearest to `channels`, at least 8 and at least 90 % of `channels`.
int64_t round_channels(double channels) {
  const int64_t rounded = std::max<int64_t>(8, int64_t(channels + 4) / 8 * 8);
  return double(rounded) < 0.9 * channels ? rounded + 8 : rounded;
}

Tensor classify(nn::Sequential& features, nn::Sequential& classifier, const Tensor& x) {
  return classifier(flatten(adaptive_avg_pool2d(features(x), 1), 1));
}

void init_weights(nn::Module& net, Function linear) {
  for (const auto& [name, p] : net.named_parameters())
    if (p.dim() == 4)
      nn::init::kaiming_normal_(p, {.mode = nn::init::FanMode::kFanOut});
    else if (p.dim() == 2)
      linear(p);
    else if (name.ends_with("bias"))
      nn::init::zeros_(p);
}

void require(bool holds, const char* network, const char* expected) {
  if (!holds) throw ValueError(network, "expected ", expected);
}

struct Row {
  int64_t in, kernel, expanded, out;
  bool squeeze, hardswish;  // hardswish: the activation, instead of ReLU
  int64_t stride;
};
constexpr Row kLarge[] = {
    {16, 3, 16, 16, false, false, 1},  {16, 3, 64, 24, false, false, 2},  {24, 3, 72, 24, false, false, 1},
    {24, 5, 72, 40, true, false, 2},   {40, 5, 120, 40, true, false, 1},  {40, 5, 120, 40, true, false, 1},
    {40, 3, 240, 80, false, true, 2},  {80, 3, 200, 80, false, true, 1},  {80, 3, 184, 80, false, true, 1},
    {80, 3, 184, 80, false, true, 1},  {80, 3, 480, 112, true, true, 1},  {112, 3, 672, 112, true, true, 1},
    {112, 5, 672, 160, true, true, 2}, {160, 5, 960, 160, true, true, 1}, {160, 5, 960, 160, true, true, 1}};
constexpr Row kSmall[] = {
    {16, 3, 16, 16, true, false, 2}, {16, 3, 72, 24, false, false, 2}, {24, 3, 88, 24, false, false, 1},
    {24, 5, 96, 40, true, true, 2},  {40, 5, 240, 40, true, true, 1},  {40, 5, 240, 40, true, true, 1},
    {40, 5, 120, 48, true, true, 1}, {48, 5, 144, 48, true, true, 1},  {48, 5, 288, 96, true, true, 2},
    {96, 5, 576, 96, true, true, 1}, {96, 5, 576, 96, true, true, 1}};

struct Stage {
  int64_t expansion, kernel, stride, in, out, blocks;
};
constexpr Stage kStages[] = {{1, 3, 1, 32, 16, 1},  {6, 3, 2, 16, 24, 2},  {6, 5, 2, 24, 40, 2},
                             {6, 3, 2, 40, 80, 3},  {6, 5, 1, 80, 112, 3}, {6, 5, 2, 112, 192, 4},
                             {6, 3, 1, 192, 320, 1}};

EfficientNetOptions scaled(EfficientNetOptions o, double width_mult, double depth_mult, double dropout) {
  o.width_mult = width_mult, o.depth_mult = depth_mult, o.dropout = o.dropout.value_or(dropout);
  if (width_mult > 1.5) o.eps = 0.001, o.momentum = 0.01;  // of the largest networks
  return o;
}

}  // namespace

MobileNetV3Options mobilenet_v3_small(MobileNetV3Options o) {
  o.size = MobileNetV3Options::Size::kSmall;
  return o;
}
MobileNetV3Options mobilenet_v3_large(MobileNetV3Options o) {
  o.size = MobileNetV3Options::Size::kLarge;
  return o;
}

void MobileNetV3::build() {
  const Options& o = options();
  require(o.width_mult > 0 && o.width_mult <= 64, "MobileNetV3", "width_mult in (0, 64]");
  require(o.in > 0 && o.classes > 0, "MobileNetV3", "in and classes of 1 or more");
  const bool is_large = o.size == Options::Size::kLarge;
  const auto width = [&](int64_t channels) { return round_channels(double(channels) * o.width_mult); };
  const Style hardswish{nn::layer<nn::Hardswish>(), &relu, &hardsigmoid, 0.001, 0.01};
  Style rectified = hardswish;
  rectified.activation = nn::layer<nn::ReLU>();
  features.add(hardswish.conv({o.in, width(16), 3, 2}));
  for (const Row& r : is_large ? std::span<const Row>(kLarge) : kSmall) {
    const int64_t expanded = width(r.expanded),
                  squeezed = r.squeeze ? round_channels(double(expanded / 4)) : 0;
    features.add<InvertedResidual>(
        BlockSizes{width(r.in), r.kernel, expanded, width(r.out), squeezed, r.stride},
        r.hardswish ? hardswish : rectified);
  }
  const int64_t last = width(is_large ? 160 : 96), hidden = width(is_large ? 1280 : 1024);
  features.add(hardswish.conv({last, 6 * last}));
  classifier.add<nn::Linear>({.in = 6 * last, .out = hidden});
  classifier.add<nn::Hardswish>();
  classifier.add<nn::Dropout>({.p = o.dropout});
  classifier.add<nn::Linear>({.in = hidden, .out = o.classes});
  init_weights(*this, [](const Tensor& weight) { return nn::init::normal_(weight, {.stddev = 0.01}); });
}

Tensor MobileNetV3::forward(const Tensor& x) { return classify(features, classifier, x); }

EfficientNetOptions efficientnet_b0(EfficientNetOptions o) { return scaled(o, 1.0, 1.0, 0.2); }
EfficientNetOptions efficientnet_b1(EfficientNetOptions o) { return scaled(o, 1.0, 1.1, 0.2); }
EfficientNetOptions efficientnet_b2(EfficientNetOptions o) { return scaled(o, 1.1, 1.2, 0.3); }
EfficientNetOptions efficientnet_b3(EfficientNetOptions o) { return scaled(o, 1.2, 1.4, 0.3); }
EfficientNetOptions efficientnet_b4(EfficientNetOptions o) { return scaled(o, 1.4, 1.8, 0.4); }
EfficientNetOptions efficientnet_b5(EfficientNetOptions o) { return scaled(o, 1.6, 2.2, 0.4); }
EfficientNetOptions efficientnet_b6(EfficientNetOptions o) { return scaled(o, 1.8, 2.6, 0.5); }
EfficientNetOptions efficientnet_b7(EfficientNetOptions o) { return scaled(o, 2.0, 3.1, 0.5); }

void EfficientNet::build() {
  const Options& o = options();
  require(o.width_mult > 0 && o.width_mult <= 64, "EfficientNet", "width_mult in (0, 64]");
  require(o.depth_mult > 0 && o.depth_mult <= 64, "EfficientNet", "depth_mult in (0, 64]");
  require(o.stochastic_depth_prob >= 0 && o.stochastic_depth_prob <= 1, "EfficientNet",
          "stochastic_depth_prob in [0, 1]");
  require(o.in > 0 && o.classes > 0, "EfficientNet", "in and classes of 1 or more");
  const Style style{nn::layer<nn::SiLU>(), &silu, &sigmoid, o.eps, o.momentum};
  const auto width = [&](int64_t channels) { return round_channels(double(channels) * o.width_mult); };
  const auto depth = [&](const Stage& s) { return int64_t(std::ceil(double(s.blocks) * o.depth_mult)); };
  int64_t in = width(kStages[0].in), blocks = 0, block = 0;
  for (const Stage& s : kStages) blocks += depth(s);
  features.add(style.conv({o.in, in, 3, 2}));
  for (const Stage& s : kStages) {
    auto& stage = features.add<nn::Sequential>();
    for (int64_t i = 0; i < depth(s); ++i, ++block, in = width(s.out))
      stage.add<InvertedResidual>(
          BlockSizes{in, s.kernel, round_channels(double(in * s.expansion)), width(s.out),
                     std::max<int64_t>(1, in / 4), i == 0 ? s.stride : 1,
                     o.stochastic_depth_prob * double(block) / double(blocks)},
          style);
  }
  features.add(style.conv({in, 4 * in}));
  classifier.add<nn::Dropout>({.p = o.dropout.value_or(0.2)});
  classifier.add<nn::Linear>({.in = 4 * in, .out = o.classes});
  init_weights(*this, [](const Tensor& weight) {
    const double bound = 1 / std::sqrt(double(weight.size(0)));
    return nn::init::uniform_(weight, {.low = -bound, .high = bound});
  });
}

Tensor EfficientNet::forward(const Tensor& x) { return classify(features, classifier, x); }

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::MobileNetV3Options, gradus::nn::Layer>;
template class gradus::nn::ModuleWith<gradus::models::EfficientNetOptions, gradus::nn::Layer>;
