// Linear: a fully connected layer.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct LinearOptions {
  Required<int64_t, "in"> in;
  Required<int64_t, "out"> out;
  bool bias = true;
};
extern template class ModuleWith<LinearOptions, Layer>;

// Computes y = x w^T + b. Weight and bias start uniform in +-1/sqrt(in).
// Shapes: x [...,in] -> [...,out]; weight [out,in], bias [out].
class Linear final : public LayerWith<LinearOptions> {
 public:
  using LayerWith::LayerWith;

  Parameter weight{this, "weight", initial_weight(options())};
  Parameter bias{this, "bias", initial_bias(options())};

  Tensor forward(const Tensor& x) override;
  // Returns relu(layer(x)), as linear_relu does. With hooks, these see the layer's result.
  Tensor relu(const Tensor& x);

 private:
  static Tensor initial_weight(const LinearOptions& o);
  static Tensor initial_bias(const LinearOptions& o);
};

}  // namespace gradus::nn
