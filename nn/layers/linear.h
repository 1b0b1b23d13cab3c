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

// y = x weight^T + bias. Initial weight and bias are uniform on +-1/sqrt(in).
// Shapes: x [...,in] -> [...,out]; weight [out,in], bias [out].
class Linear final : public LayerWith<LinearOptions> {
 public:
  using LayerWith::LayerWith;

  Parameter weight{this, "weight", initial_weight(options())};
  Parameter bias{this, "bias", initial_bias(options())};

  Tensor forward(const Tensor& x) override;
  // Returns relu(layer(x)), by linear_relu unless the layer has hooks, which get the result before the relu.
  Tensor relu(const Tensor& x);

 private:
  static Tensor initial_weight(const LinearOptions& o);
  static Tensor initial_bias(const LinearOptions& o);
};

}  // namespace gradus::nn
