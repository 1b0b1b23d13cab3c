// Flatten and Unflatten: merge several dims into one, and split one dim into several.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct FlattenOptions {
  int64_t start = 1, end = -1;  // first and last of the dims to merge
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

// Splits a dim into several: the inverse of Flatten.
// Shapes: x [N,C*H*W] -> [N,C,H,W] for dim 1, sizes {C,H,W}.
class Unflatten final : public LayerWith<UnflattenOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

}  // namespace gradus::nn
