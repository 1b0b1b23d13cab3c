// Layers that normalize over the last dims: LayerNorm, RMSNorm. Weights start at 1, biases at 0.
#pragma once

#include <optional>

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct LayerNormOptions {
  Required<Shape, "shape"> shape;  // the sizes of the last dims; a number stands for one dim
  double eps = 1e-5;
  bool affine = true;  // learns weight and bias
  bool bias = true;    // with affine, learns a bias too
};
extern template class ModuleWith<LayerNormOptions, Layer>;

// Normalizes over the last dims, of the sizes `shape`, as layer_norm does.
// Shapes: x [...,shape] -> the same; weight, bias `shape`.
class LayerNorm final : public LayerWith<LayerNormOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter weight{this, "weight", initial(options().affine, 1)};
  Parameter bias{this, "bias", initial(options().affine&& options().bias, 0)};
  Tensor forward(const Tensor& x) override;

 private:
  Tensor initial(bool wanted, double value) const;
};

struct RMSNormOptions {
  Required<Shape, "shape"> shape;  // the sizes of the last dims; a number stands for one dim
  std::optional<double> eps = {};  // none: the machine precision of the type computed in
  bool affine = true;              // learns a weight
};
extern template class ModuleWith<RMSNormOptions, Layer>;

// Divides by the root mean square over the last dims, of the sizes `shape`, as rms_norm does.
// Shapes: x [...,shape] -> the same; weight `shape`.
class RMSNorm final : public LayerWith<RMSNormOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter weight{this, "weight", initial()};
  Tensor forward(const Tensor& x) override;

 private:
  Tensor initial() const;
};

}  // namespace gradus::nn
