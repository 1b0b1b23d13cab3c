// Layers that rearrange or resample elements: Flatten and Unflatten, PixelShuffle, PixelUnshuffle and
// ChannelShuffle, Unfold and Fold, Upsample and its 2d forms. Errors of a call are those of the op, also for options out of
// range.
#pragma once

#include <vector>

#include "gradus/autograd/ops/images/interpolate.h"
#include "gradus/autograd/ops/images/pixel_shuffle.h"
#include "gradus/autograd/ops/images/unfold.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

struct FlattenOptions {
  int64_t start = 1, end = -1;  // first and last of the dims to merge
};
extern template class ModuleWith<FlattenOptions, Layer>;

// Shapes: x [N,C,H,W] -> [N,C*H*W] by default.
using Flatten = OpLayer<FlattenOptions, &flatten, "Flatten", &FlattenOptions::start, &FlattenOptions::end>;

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

struct PixelShuffleOptions {
  Required<int64_t, "factor"> factor;
};
extern template class ModuleWith<PixelShuffleOptions, Layer>;

// Applies pixel_shuffle with f = factor.
// Shapes: x [...,C f^2,H,W] -> [...,C,H f,W f].
using PixelShuffle =
    OpLayer<PixelShuffleOptions, &pixel_shuffle, "PixelShuffle", &PixelShuffleOptions::factor>;

// Applies pixel_unshuffle with f = factor, the inverse of pixel_shuffle.
// Shapes: x [...,C,H f,W f] -> [...,C f^2,H,W].
using PixelUnshuffle =
    OpLayer<PixelShuffleOptions, &pixel_unshuffle, "PixelUnshuffle", &PixelShuffleOptions::factor>;

struct ChannelShuffleOptions {
  Required<int64_t, "groups"> groups;
};
extern template class ModuleWith<ChannelShuffleOptions, Layer>;

// Interleaves the channels of groups: channel g * C/groups + c becomes channel c * groups + g.
// Shapes: x [N,C,...] -> the same.
// Errors: ShapeError unless groups divides C; ValueError for groups < 1.
// Source: Zhang et al., "ShuffleNet", CVPR 2018.
class ChannelShuffle final : public LayerWith<ChannelShuffleOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

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

struct UpsampleOptions {
  // Exactly one of size and scale_factor is set, with one entry per spatial dim (scale_factor: or one entry).
  Dims size = {};                         // output size
  std::vector<double> scale_factor = {};  // output size / input size
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

// Exactly one of size and scale_factor is set, as in UpsampleOptions.
struct Upsampling2dOptions {
  Dims size = {};
  std::vector<double> scale_factor = {};
};

// Upsample with mode kNearest.
// Shapes: x [N,C,H,W].
class UpsamplingNearest2d final : public LayerWith<Upsampling2dOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

// Upsample with mode kBilinear and align_corners.
// Shapes: x [N,C,H,W].
class UpsamplingBilinear2d final : public LayerWith<Upsampling2dOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

}  // namespace gradus::nn
