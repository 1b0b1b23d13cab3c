// Conv2d: a convolution layer over images.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct Conv2dOptions {
  Required<int64_t> in, out;  // channels
  Required<Size2> kernel;
  Size2 stride = 1;
  Size2 padding = 0;
  Size2 dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

// Convolves as conv2d does. Weight and bias start uniform in +-1/sqrt(in / groups * kernel.h * kernel.w).
// Shapes: x [N,in,H,W] -> [N,out,P,Q]; weight [out,in/groups,kernel.h,kernel.w], bias [out].
class Conv2d final : public LayerWith<Conv2dOptions> {
 public:
  using LayerWith::LayerWith;

  Parameter weight{this, "weight", initial_weight(options())};
  Parameter bias{this, "bias", initial_bias(options())};

  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  static Tensor initial_weight(const Conv2dOptions& o);
  static Tensor initial_bias(const Conv2dOptions& o);
};

}  // namespace gradus::nn
