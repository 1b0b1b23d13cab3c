// ConvBlock: a convolution, a norm and a rectifier.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gradus/nn/nn.h"

namespace gradus::models::internal {

struct ConvBlockOptions {
  nn::LayerFactory conv;       // the child "conv"
  std::string norm_name = {};  // of the norm, which follows the convolution; "": there is none
  nn::LayerFactory norm = {};
  std::optional<double> slope = 0;  // of the rectifier below 0; none: there is no rectifier
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

// Returns the factory of a convolution whose weight starts normal by its number of outputs, for a rectifier
// of this slope, and whose bias starts at 0.
// Source: He et al., ICCV 2015.
template <class Conv> nn::LayerFactory kaiming(typename Conv::Options options, double slope) {
  return [options, slope](nn::Module* parent, const std::string& name) {
    auto conv = std::make_unique<Conv>(parent, name, options);
    nn::init::kaiming_normal_(conv->weight, {.a = slope, .mode = nn::init::FanMode::kFanOut});
    if (conv->bias.defined()) nn::init::zeros_(conv->bias);
    return conv;
  };
}

}  // namespace gradus::models::internal
