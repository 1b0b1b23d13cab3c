// Dropout: sets random elements, or whole channels, to zero while training.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct DropoutOptions {
  double p = 0.5;  // probability of a zero, in [0, 1]
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

// Dropout that keeps mean 0 and variance 1 after SELU: alpha_dropout, and for
// whole channels feature_alpha_dropout.
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
