// Flatten: joins dimensions.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct FlattenOptions {
  int64_t start = 1, end = -1;  // the dimensions to join, both included
};

// Shapes: x [N,C,H,W] -> [N,C*H*W] by default.
class Flatten final : public LayerWith<FlattenOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

}  // namespace gradus::nn
