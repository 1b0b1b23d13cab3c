// MobileNetV3 and EfficientNet: inverted residual blocks with squeeze-and-excitation. Parameters and buffers have
// torchvision's names ("features.1.block.0.0.weight"), so that weights can be exchanged with torchvision.
//
//   models::MobileNetV3 net(models::mobilenet_v3_small({.classes = 10}));
#pragma once

#include <optional>

#include "gradus/nn/nn.h"

namespace gradus::models {

struct MobileNetV3Options {
  enum class Size { kSmall, kLarge };
  Size size = Size::kLarge;
  double width_mult = 1;   // multiplies the numbers of channels, which are rounded to multiples of 8
  int64_t in = 3;          // channels of the images
  int64_t classes = 1000;  // number of logits
  double dropout = 0.2;    // probability before the last layer
};

// Return the options with the size of the named network: 2.5 and 5.5 million parameters.
MobileNetV3Options mobilenet_v3_small(MobileNetV3Options options = {});
MobileNetV3Options mobilenet_v3_large(MobileNetV3Options options = {});

// Returns logits. Initial weights of convolutions are Kaiming-normal by fan_out, those of linear layers normal with
// standard deviation 0.01; biases are 0.
// Shapes: x [N,in,H,W] -> [N,classes].
// Source: Howard et al., "Searching for MobileNetV3", ICCV 2019.
class MobileNetV3 final : public nn::LayerWith<MobileNetV3Options> {
 public:
  // Errors: ValueError for options out of range.
  explicit MobileNetV3(Options options = {}) : LayerWith(options) { build(); }
  MobileNetV3(nn::Module* parent, std::string name, Options options = {})
      : LayerWith(parent, std::move(name), options) {
    build();
  }
  nn::Sequential features{this, "features"}, classifier{this, "classifier"};
  Tensor forward(const Tensor& x) override;

 private:
  void build();
};

// The defaults are those of efficientnet_b0.
struct EfficientNetOptions {
  double width_mult = 1;  // multiplies the numbers of channels, which are rounded to multiples of 8
  double depth_mult = 1;  // multiplies the numbers of blocks per stage, which are rounded up
  // Dropout probability before the last layer; nullopt: that of the named network, or 0.2.
  std::optional<double> dropout = {};
  // Probability with which the last block is skipped for a sample in training; it rises linearly from 0 at the first.
  double stochastic_depth_prob = 0.2;
  double eps = 1e-5, momentum = 0.1;  // of the batch norms
  int64_t in = 3;                     // channels of the images
  int64_t classes = 1000;             // number of logits
};

// Return the options with the multipliers, dropout and batch norms of the named network: 5.3 to 66.3 million parameters.
EfficientNetOptions efficientnet_b0(EfficientNetOptions options = {});
EfficientNetOptions efficientnet_b1(EfficientNetOptions options = {});
EfficientNetOptions efficientnet_b2(EfficientNetOptions options = {});
EfficientNetOptions efficientnet_b3(EfficientNetOptions options = {});
EfficientNetOptions efficientnet_b4(EfficientNetOptions options = {});
EfficientNetOptions efficientnet_b5(EfficientNetOptions options = {});
EfficientNetOptions efficientnet_b6(EfficientNetOptions options = {});
EfficientNetOptions efficientnet_b7(EfficientNetOptions options = {});

// Returns logits. Initial weights of convolutions are Kaiming-normal by fan_out, those of the linear layer uniform on
// +-1/sqrt(classes); biases are 0.
// Shapes: x [N,in,H,W] -> [N,classes].
// Source: Tan and Le, "EfficientNet: rethinking model scaling for convolutional neural networks", ICML 2019; Huang et
// al., "Deep networks with stochastic depth", ECCV 2016.
class EfficientNet final : public nn::LayerWith<EfficientNetOptions> {
 public:
  // Errors: ValueError for options out of range.
  explicit EfficientNet(Options options = {}) : LayerWith(options) { build(); }
  EfficientNet(nn::Module* parent, std::string name, Options options = {})
      : LayerWith(parent, std::move(name), options) {
    build();
  }
  nn::Sequential features{this, "features"}, classifier{this, "classifier"};
  Tensor forward(const Tensor& x) override;

 private:
  void build();
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::MobileNetV3Options, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::EfficientNetOptions, gradus::nn::Layer>;
