// ResNet: residual blocks y = relu(f(x) + shortcut(x)), presets by name, and the network as a list of layers.
// Images and feature maps are [N, C, H, W]. Layers have torchvision's names, which define the names of
// parameters. Errors in options are ValueErrors of the constructor; those in shapes come from the layers.
#include "gradus/models/resnet.h"

#include <utility>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"

namespace gradus::models {
namespace {

using Options = ResNetOptions;

int64_t expansion(const Options& o) { return o.block == Options::Block::kBottleneck ? 4 : 1; }

struct BlockOptions {
  int64_t in,
      width;       // input channels, and channels of the stage; a bottleneck's output has 4 * width channels
  int64_t stride;  // of the block's 3x3 convolution and of its shortcut: 1, or 2 to halve height and width
};

// The shortcut without parameters: every stride-th pixel, with `more` zero channels, half of them in front.
// Shapes: x [N, C, H, W] -> [N, C + more, ceil(H / stride), ceil(W / stride)].
class PadChannels final : public nn::Layer {
 public:
  PadChannels(Module* parent, std::string name, int64_t stride, int64_t more)
      : Layer(parent, std::move(name)), stride_(stride), more_(more) {}
  Tensor forward(const Tensor& x) override {
    const Tensor sub = slice(slice(x, 2, 0, x.size(2), stride_), 3, 0, x.size(3), stride_);
    return pad(sub, {0, 0, 0, 0, more_ / 2, more_ - more_ / 2});
  }

 private:
  int64_t stride_, more_;
};

// Returns the block's shortcut; null for the identity.
std::unique_ptr<nn::Layer> make_shortcut(nn::Module* block, const Options& o, BlockOptions b) {
  const int64_t out = b.width * expansion(o);
  if (b.stride == 1 && b.in == out) return nullptr;
  if (o.shortcut == Options::Shortcut::kPad)
    return std::make_unique<PadChannels>(block, "shortcut", b.stride, out - b.in);
  return std::make_unique<nn::Sequential>(
      block, "downsample",
      std::vector{
          nn::layer<nn::Conv2d>({.in = b.in, .out = out, .kernel = 1, .stride = b.stride, .bias = false}),
          nn::layer<nn::BatchNorm2d>({.features = out})});
}

// Base of the blocks, which applies ResNetOptions::checkpoint.
class ResidualBlock : public nn::Layer {
 public:
  ResidualBlock(Module* parent, std::string name, const Options& o)
      : Layer(parent, std::move(name)), checkpoint_(o.checkpoint) {}
  Tensor forward(const Tensor& x) final {
    return checkpoint_ ? autograd::checkpoint([this](const Tensor& in) { return compute(in); }, x)
                       : compute(x);
  }

 private:
  virtual Tensor compute(const Tensor& x) = 0;
  bool checkpoint_;
};

// f(x) = bn2(conv2(relu(bn1(conv1(x))))) with 3x3 convolutions. bn2.add_relu also adds the shortcut.
struct BasicBlock final : ResidualBlock {
  BasicBlock(Module* parent, std::string name, const Options& o, BlockOptions b)
      : ResidualBlock(parent, std::move(name), o),
        conv1{this,
              "conv1",
              {.in = b.in, .out = b.width, .kernel = 3, .stride = b.stride, .padding = 1, .bias = false}},
        bn1{this, "bn1", {.features = b.width}},
        conv2{this, "conv2", {.in = b.width, .out = b.width, .kernel = 3, .padding = 1, .bias = false}},
        bn2{this, "bn2", {.features = b.width}},
        shortcut(make_shortcut(this, o, b)) {
    if (o.zero_init_residual) nn::init::zeros_(bn2.weight);
  }

  Tensor compute(const Tensor& x) override {
    const Tensor h = conv2(bn1.relu(conv1(x)));
    return bn2.add_relu(h, shortcut ? (*shortcut)(x) : x);
  }

  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  std::unique_ptr<nn::Layer> shortcut;
};

// f(x): 1x1 convolution to `middle` channels, 3x3 convolution in `groups` groups, 1x1 convolution to 4 *
// width channels, each with batch norm.
struct Bottleneck final : ResidualBlock {
  Bottleneck(Module* parent, std::string name, const Options& o, BlockOptions b)
      : ResidualBlock(parent, std::move(name), o),
        middle(b.width * o.width_per_group / 64 * o.groups),
        conv1{this, "conv1", {.in = b.in, .out = middle, .kernel = 1, .bias = false}},
        bn1{this, "bn1", {.features = middle}},
        conv2{this,
              "conv2",
              {.in = middle,
               .out = middle,
               .kernel = 3,
               .stride = b.stride,
               .padding = 1,
               .groups = o.groups,
               .bias = false}},
        bn2{this, "bn2", {.features = middle}},
        conv3{this, "conv3", {.in = middle, .out = 4 * b.width, .kernel = 1, .bias = false}},
        bn3{this, "bn3", {.features = 4 * b.width}},
        shortcut(make_shortcut(this, o, b)) {
    if (o.zero_init_residual) nn::init::zeros_(bn3.weight);
  }

  Tensor compute(const Tensor& x) override {
    const Tensor h = conv3(bn2.relu(conv2(bn1.relu(conv1(x)))));
    return bn3.add_relu(h, shortcut ? (*shortcut)(x) : x);
  }

  int64_t middle;
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Conv2d conv3;
  nn::BatchNorm2d bn3;
  std::unique_ptr<nn::Layer> shortcut;
};

void add_block(nn::Sequential& stage, const Options& o, BlockOptions b) {
  if (o.block == Options::Block::kBasic)
    stage.add<BasicBlock>(o, b);
  else
    stage.add<Bottleneck>(o, b);
}

void check(const Options& o) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw ValueError("ResNet", what);
  };
  require(!o.stages.empty(), "expected at least one stage");
  for (int64_t n : o.stages) require(n > 0, "expected at least one block in each stage");
  require(o.width > 0 && o.in > 0 && o.classes > 0, "expected width, in and classes of 1 or more");
  require(o.groups > 0 && o.width_per_group > 0, "expected groups and width_per_group of 1 or more");
  require(o.block == Options::Block::kBottleneck || (o.groups == 1 && o.width_per_group == 64),
          "groups and width_per_group are for bottleneck blocks");
}

Options options_of(std::vector<int64_t> stages, Options::Block block, ResNetHead head, int64_t groups = 1,
                   int64_t width_per_group = 64) {
  return {.stages = std::move(stages),
          .block = block,
          .groups = groups,
          .width_per_group = width_per_group,
          .classes = head.classes,
          .zero_init_residual = head.zero_init_residual,
          .checkpoint = head.checkpoint};
}

// Returns the mean over H and W. Shapes: h [N, C, H, W] -> [N, C].
Tensor global_average(const Tensor& h) { return flatten(adaptive_avg_pool2d(h, 1), 1); }

constexpr auto kBasic = Options::Block::kBasic;
constexpr auto kBottleneck = Options::Block::kBottleneck;

using Preset = Options (*)(ResNetHead);
constexpr std::pair<std::string_view, Preset> kPresets[] = {
    {"resnet18", resnet18},
    {"resnet34", resnet34},
    {"resnet50", resnet50},
    {"resnet101", resnet101},
    {"resnet152", resnet152},
    {"resnext50_32x4d", resnext50_32x4d},
    {"resnext101_32x8d", resnext101_32x8d},
    {"resnext101_64x4d", resnext101_64x4d},
    {"wide_resnet50_2", wide_resnet50_2},
    {"wide_resnet101_2", wide_resnet101_2},
    {"resnet20", [](ResNetHead h) { return cifar_resnet(20, h); }},
    {"resnet32", [](ResNetHead h) { return cifar_resnet(32, h); }},
    {"resnet44", [](ResNetHead h) { return cifar_resnet(44, h); }},
    {"resnet56", [](ResNetHead h) { return cifar_resnet(56, h); }},
    {"resnet110", [](ResNetHead h) { return cifar_resnet(110, h); }},
};

}  // namespace

ResNetOptions resnet18(ResNetHead head) { return options_of({2, 2, 2, 2}, kBasic, head); }
ResNetOptions resnet34(ResNetHead head) { return options_of({3, 4, 6, 3}, kBasic, head); }
ResNetOptions resnet50(ResNetHead head) { return options_of({3, 4, 6, 3}, kBottleneck, head); }
ResNetOptions resnet101(ResNetHead head) { return options_of({3, 4, 23, 3}, kBottleneck, head); }
ResNetOptions resnet152(ResNetHead head) { return options_of({3, 8, 36, 3}, kBottleneck, head); }
ResNetOptions resnext50_32x4d(ResNetHead head) { return options_of({3, 4, 6, 3}, kBottleneck, head, 32, 4); }
ResNetOptions resnext101_32x8d(ResNetHead head) {
  return options_of({3, 4, 23, 3}, kBottleneck, head, 32, 8);
}
ResNetOptions resnext101_64x4d(ResNetHead head) {
  return options_of({3, 4, 23, 3}, kBottleneck, head, 64, 4);
}
ResNetOptions wide_resnet50_2(ResNetHead head) { return options_of({3, 4, 6, 3}, kBottleneck, head, 1, 128); }
ResNetOptions wide_resnet101_2(ResNetHead head) {
  return options_of({3, 4, 23, 3}, kBottleneck, head, 1, 128);
}

ResNetOptions cifar_resnet(int64_t depth, ResNetHead head) {
  if (depth < 8 || depth % 6 != 2 || depth > 10000)
    throw ValueError("cifar_resnet", "expected a depth of 6 n + 2, got ", depth);
  const int64_t n = (depth - 2) / 6;
  Options o = options_of({n, n, n}, kBasic, head);
  o.stem = Options::Stem::kCifar;
  o.shortcut = Options::Shortcut::kPad;
  o.width = 16;
  return o;
}

ResNetOptions resnet(std::string_view name, ResNetHead head) {
  std::string names;
  for (const auto& [known, make] : kPresets) {
    if (known == name) return make(head);
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  throw ValueError("resnet", "there is no network '", name, "'; there are ", names);
}

std::vector<std::string> resnet_names() {
  std::vector<std::string> names;
  for (const auto& preset : kPresets) names.emplace_back(preset.first);
  return names;
}

ResNet::ResNet(Options options) : LayerWith(std::move(options)) { build(); }
ResNet::ResNet(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}

void ResNet::build() {
  const Options& o = options();
  check(o);
  const auto add = [this]<class L>(std::unique_ptr<L> layer) -> L& {
    L& l = *layer;
    layers_.push_back(std::move(layer));
    return l;
  };
  const bool is_large = o.stem == Options::Stem::kImageNet;
  add(std::make_unique<nn::Conv2d>(this, "conv1",
                                   nn::Conv2dOptions{.in = o.in,
                                                     .out = o.width,
                                                     .kernel = is_large ? 7 : 3,
                                                     .stride = is_large ? 2 : 1,
                                                     .padding = is_large ? 3 : 1,
                                                     .bias = false}));
  add(std::make_unique<nn::BatchNorm2d>(this, "bn1", nn::BatchNormOptions{.features = o.width}));
  int64_t in = o.width, width = o.width;
  for (size_t s = 0; s < o.stages.size(); ++s, width *= 2) {
    auto& stage = add(std::make_unique<nn::Sequential>(this, "layer" + std::to_string(s + 1)));
    for (int64_t b = 0; b < o.stages[s]; ++b) {
      add_block(stage, o, {.in = in, .width = width, .stride = s > 0 && b == 0 ? 2 : 1});
      in = width * expansion(o);
    }
  }
  add(std::make_unique<nn::Linear>(this, "fc", nn::LinearOptions{.in = in, .out = o.classes}));
  apply([](nn::Module& m) {
    if (const auto* conv = dynamic_cast<nn::Conv2d*>(&m))
      nn::init::kaiming_normal_(
          conv->weight, {.mode = nn::init::FanMode::kFanOut, .nonlinearity = nn::init::Nonlinearity::kReLU});
  });
}

Tensor ResNet::stem(const Tensor& x) {
  const Tensor h = dynamic_cast<nn::BatchNorm2d&>(*layers_[1]).relu((*layers_[0])(x));
  return options().stem == Options::Stem::kImageNet ? max_pool2d(h, {.kernel = 3, .stride = 2, .padding = 1})
                                                    : h;
}

Tensor ResNet::stage(int64_t number, Tensor h) {
  const auto stages = static_cast<int64_t>(options().stages.size());
  if (number < 1 || number > stages)
    throw ValueError("ResNet", "expected a stage from 1 to ", stages, ", got ", number);
  return (*layers_[size_t(number) + 1])(std::move(h));
}

Tensor ResNet::features(const Tensor& x) {
  Tensor h = stem(x);
  for (size_t s = 1; s <= options().stages.size(); ++s) h = stage(static_cast<int64_t>(s), std::move(h));
  return global_average(h);
}

Tensor ResNet::head(const Tensor& h) { return (*layers_.back())(global_average(h)); }

Tensor ResNet::forward(const Tensor& x) { return (*layers_.back())(features(x)); }

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::ResNetOptions, gradus::nn::Layer>;
