// PixelShuffle and PixelUnshuffle (rearrange channels to pixels and back), and ChannelShuffle.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct PixelShuffleOptions {
  Required<int64_t, "factor"> factor;
};
extern template class ModuleWith<PixelShuffleOptions, Layer>;

// Applies pixel_shuffle with f = factor.
// Shapes: x [...,C f^2,H,W] -> [...,C,H f,W f].
class PixelShuffle final : public LayerWith<PixelShuffleOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

// Applies pixel_unshuffle with f = factor, the inverse of pixel_shuffle.
// Shapes: x [...,C,H f,W f] -> [...,C f^2,H,W].
class PixelUnshuffle final : public LayerWith<PixelShuffleOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

struct ChannelShuffleOptions {
  Required<int64_t, "groups"> groups;
};
extern template class ModuleWith<ChannelShuffleOptions, Layer>;

// Interleaves the channels of groups: channel g * C/groups + c becomes channel c * groups + g.
// Shapes: x [N,C,...] -> the same.
// Errors: ShapeError unless groups divides C.
// Source: Zhang et al., "ShuffleNet", CVPR 2018.
class ChannelShuffle final : public LayerWith<ChannelShuffleOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

}  // namespace gradus::nn
