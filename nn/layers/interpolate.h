// Upsample: resizes signals, images and volumes.
#pragma once

#include <vector>

#include "gradus/autograd/ops/images/interpolate.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

struct UpsampleOptions {
  Dims size = {};                         // output size, one entry per spatial dim; or
  std::vector<double> scale_factor = {};  // output / input size, one entry per spatial dim or one for all
  Interpolation mode = Interpolation::kNearest;
  bool align_corners = false;
};

// Applies interpolate.
// Shapes: x [N,C,L], [N,C,H,W] or [N,C,D,H,W].
class Upsample final : public LayerWith<UpsampleOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override {
    const Options& o = options();
    return interpolate(
        x,
        {.size = o.size, .scale_factor = o.scale_factor, .mode = o.mode, .align_corners = o.align_corners});
  }
};

}  // namespace gradus::nn
