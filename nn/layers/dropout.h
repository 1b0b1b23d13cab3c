// Dropout layers: set random elements, or whole channels, to zero in training.
#pragma once

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

// The same for whole channels: dropout1d, dropout2d and dropout3d.
class Dropout1d final : public LayerWith<DropoutOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};
class Dropout2d final : public LayerWith<DropoutOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};
class Dropout3d final : public LayerWith<DropoutOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

// Dropout that preserves mean 0 and variance 1 of SELU outputs: alpha_dropout, and feature_alpha_dropout for whole
// channels.
class AlphaDropout final : public LayerWith<DropoutOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};
class FeatureAlphaDropout final : public LayerWith<DropoutOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

}  // namespace gradus::nn
