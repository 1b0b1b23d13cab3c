// Layers that resize images or move elements between channels and cells: Upsample, PixelShuffle,
// PixelUnshuffle, Unfold, Fold.
#pragma once

#include <vector>

#include "gradus/autograd/ops/images/interpolate.h"
#include "gradus/autograd/ops/images/unfold.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

struct UpsampleOptions {
  Dims size = {};                         // one per dim after the channels; or
  std::vector<double> scale_factor = {};  // one per such dim, or one for all
  Interpolation mode = Interpolation::kNearest;
  bool align_corners = false;
};

// Resizes as interpolate does.
// Shapes: x [N,C,L], [N,C,H,W] or [N,C,D,H,W].
class Upsample final : public LayerWith<UpsampleOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

struct PixelShuffleOptions {
  Required<int64_t, "factor"> factor;
};

// Spreads channels over cells, as pixel_shuffle does.
// Shapes: x [...,C f^2,H,W] -> [...,C,H f,W f].
class PixelShuffle final : public LayerWith<PixelShuffleOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

// Gathers cells in channels, as pixel_unshuffle does.
// Shapes: x [...,C,H f,W f] -> [...,C f^2,H,W].
class PixelUnshuffle final : public LayerWith<PixelShuffleOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

// Returns windows as columns, as unfold does.
// Shapes: x [N,C,H,W] -> [N,C KH KW,windows].
class Unfold final : public LayerWith<UnfoldOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

struct FoldOptions {
  Required<Size2, "output"> output;
  Required<Size2, "kernel"> kernel;
  Size2 stride = 1;
  Size2 padding = 0;
  Size2 dilation = 1;
};

// Adds columns up to images, as fold does.
// Shapes: x [N,C KH KW,windows] -> [N,C,output.h,output.w].
class Fold final : public LayerWith<FoldOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

}  // namespace gradus::nn
