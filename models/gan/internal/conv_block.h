// ConvBlock: a convolution, followed by an optional norm and an optional ReLU or leaky ReLU.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gradus/nn/nn.h"

namespace gradus::models::internal {

struct ConvBlockOptions {
  nn::LayerFactory conv;            // makes the child "conv"
  std::string norm_name = {};       // name of the norm's child
  nn::LayerFactory norm = {};       // empty: no norm
  std::optional<double> slope = 0;  // negative slope of the activation, 0 for ReLU; nullopt: no activation
};

// y = leaky_relu(norm(conv(x)), slope)
class ConvBlock final : public nn::Layer {
 public:
  ConvBlock(nn::Module* parent, std::string name, const ConvBlockOptions& options);
  Tensor forward(const Tensor& x) override;

 private:
  std::unique_ptr<nn::Layer> conv_, norm_;
  std::optional<double> slope_;
};

// Returns a factory of convolutions with Kaiming-normal initial weights by fan_out for a leaky ReLU of this
// slope, and with initial bias 0. Source: He et al., ICCV 2015.
template <class Conv> nn::LayerFactory kaiming(typename Conv::Options options, double slope) {
  return [options, slope](nn::Module* parent, const std::string& name) {
    auto conv = std::make_unique<Conv>(parent, name, options);
    nn::init::kaiming_normal_(conv->weight, {.a = slope, .mode = nn::init::FanMode::kFanOut});
    if (conv->bias.defined()) nn::init::zeros_(conv->bias);
    return conv;
  };
}

}  // namespace gradus::models::internal
