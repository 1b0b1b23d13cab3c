// Dropout layers: set random elements, or whole channels, to zero in training. Shapes, and errors of a call
// (also ValueError for p outside of [0, 1]): autograd/ops/dropout.h.
#pragma once

#include "gradus/autograd/ops/dropout.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

struct DropoutOptions {
  double p = 0.5;  // probability with which an element is zeroed, in [0, 1]
};
extern template class ModuleWith<DropoutOptions, Layer>;

// In training, zeroes each element with probability p and scales the others by 1 / (1 - p); else returns x.
class Dropout final : public LayerWith<DropoutOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;

 private:
  Tensor forward_temporary(Tensor&& x) override;
};

// A dropout that calls the op F; N is the name of the class.
template <auto F, OptionName N> class DropoutOf final : public LayerWith<DropoutOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override { return F(x, options().p, is_training()); }
  std::string type_name() const override { return N.name; }
};
// The same for whole channels: dropout1d, dropout2d and dropout3d.
using Dropout1d = DropoutOf<&dropout1d, "Dropout1d">;
using Dropout2d = DropoutOf<&dropout2d, "Dropout2d">;
using Dropout3d = DropoutOf<&dropout3d, "Dropout3d">;

// Dropout that preserves mean 0 and variance 1 of SELU outputs: alpha_dropout, and feature_alpha_dropout for
// whole channels.
using AlphaDropout = DropoutOf<&alpha_dropout, "AlphaDropout">;
using FeatureAlphaDropout = DropoutOf<&feature_alpha_dropout, "FeatureAlphaDropout">;

}  // namespace gradus::nn
