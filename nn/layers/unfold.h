// Unfold (im2col) and Fold (col2im) as layers.
#pragma once

#include "gradus/autograd/ops/images/unfold.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

extern template class ModuleWith<UnfoldOptions, Layer>;

// Applies unfold: returns the windows of images as columns.
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

// Applies fold: adds columns to the windows of images.
// Shapes: x [N,C KH KW,windows] -> [N,C,output.h,output.w].
class Fold final : public LayerWith<FoldOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

}  // namespace gradus::nn
