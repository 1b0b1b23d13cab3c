// ConvBlock: a convolution, followed by an optional normalization layer and an optional ReLU or leaky ReLU.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gradus/nn/nn.h"

namespace gradus::models::internal {

// A LayerFactory is a function (parent, name) that returns a new layer, registered as a child of the parent.
struct ConvBlockOptions {
  nn::LayerFactory conv;            // makes the child "conv"
  std::string norm_name = {};       // name of the child that `norm` makes
  nn::LayerFactory norm = {};       // makes the normalization layer; empty: none
  std::optional<double> slope = 0;  // negative slope of the activation, 0 for ReLU; nullopt: no activation
};

// y = leaky_relu(norm(conv(x)), slope). Shapes: those of the convolution.
class ConvBlock final : public nn::Layer {
 public:
  ConvBlock(nn::Module* parent, std::string name, const ConvBlockOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  std::unique_ptr<nn::Layer> conv_, norm_;  // norm_ is null without a norm
  std::optional<double> slope_;
};

// Returns a factory of Conv layers. The weights are initialized by kaiming_normal_ with mode fan_out, for a leaky
// ReLU with this negative slope; the bias is initialized to 0.
// Source: He et al., "Delving deep into rectifiers", ICCV 2015.
template <class Conv> nn::LayerFactory kaiming(typename Conv::Options options, double slope) {
  return [options, slope](nn::Module* parent, const std::string& name) {
    auto conv = std::make_unique<Conv>(parent, name, options);
    nn::init::kaiming_normal_(conv->weight, {.a = slope, .mode = nn::init::FanMode::kFanOut});
    if (conv->bias.defined()) nn::init::zeros_(conv->bias);
    return conv;
  };
}

}  // namespace gradus::models::internal
