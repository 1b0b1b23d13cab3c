// Layers that cut images into windows and add them up again: Unfold, Fold.
#pragma once

#include "gradus/autograd/ops/images/unfold.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

extern template class ModuleWith<UnfoldOptions, Layer>;

// Returns windows as columns, as unfold does.
// Shapes: x [N,C,H,W] -> [N,C KH KW,windows].
class Unfold final : public LayerWith<UnfoldOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

struct FoldOptions {
  Required<Size2, "output"> output;
  Required<Size2, "kernel"> kernel;
  Size2 stride = 1;
  Size2 padding = 0;
  Size2 dilation = 1;
};
extern template class ModuleWith<FoldOptions, Layer>;

// Adds columns up to images, as fold does.
// Shapes: x [N,C KH KW,windows] -> [N,C,output.h,output.w].
class Fold final : public LayerWith<FoldOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

}  // namespace gradus::nn
