// Flatten and Unflatten: join dimensions, and split one.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct FlattenOptions {
  int64_t start = 1, end = -1;  // the dimensions to join, both included
};
extern template class ModuleWith<FlattenOptions, Layer>;

// Shapes: x [N,C,H,W] -> [N,C*H*W] by default.
class Flatten final : public LayerWith<FlattenOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

struct UnflattenOptions {
  Required<int64_t, "dim"> dim;
  Required<Shape, "sizes"> sizes;  // one may be -1
};
extern template class ModuleWith<UnflattenOptions, Layer>;

// Splits a dim into several: the reverse of Flatten.
// Shapes: x [N,C*H*W] -> [N,C,H,W] for dim 1, sizes {C,H,W}.
class Unflatten final : public LayerWith<UnflattenOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

}  // namespace gradus::nn
