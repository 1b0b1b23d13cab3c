// Layers that normalize over the last dims: LayerNorm, RMSNorm. Initial weights are 1, initial biases 0.
// Errors: ValueError of constructors for no dims or sizes below 1; of a call those of the op
// (autograd/ops/norm/layer_norm.h), such as ShapeError for an x that does not end with `shape`.
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

// Applies layer_norm over the last dims, whose sizes are `shape`.
// Shapes: x [...,shape] -> the same; weight, bias `shape`.
class LayerNorm final : public LayerWith<LayerNormOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter weight{this, "weight", initial(options().affine, 1)};
  Parameter bias{this, "bias", initial(options().affine&& options().bias, 0)};
  Tensor forward(const Tensor& x) override;

 private:
  Tensor initial(bool enabled, double value) const;
};

struct RMSNormOptions {
  Required<Shape, "shape"> shape;  // the sizes of the last dims; a number stands for one dim
  std::optional<double> eps = {};  // nullopt: machine epsilon of f64 for f64, else of f32
  bool affine = true;              // learns a weight
};
extern template class ModuleWith<RMSNormOptions, Layer>;

// Applies rms_norm over the last dims, whose sizes are `shape`.
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
