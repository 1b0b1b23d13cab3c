// Layers that move elements without computing: Identity, Unflatten, ChannelShuffle.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct IdentityOptions {};

// Returns x.
class Identity final : public LayerWith<IdentityOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override { return x; }
};

struct UnflattenOptions {
  Required<int64_t, "dim"> dim;
  Required<Shape, "sizes"> sizes;  // one may be -1
};

// Splits a dim into several: the reverse of Flatten.
// Shapes: x [N,C*H*W] -> [N,C,H,W] for dim 1, sizes {C,H,W}.
class Unflatten final : public LayerWith<UnflattenOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

struct ChannelShuffleOptions {
  Required<int64_t, "groups"> groups;
};

// Mixes the channels of groups: channel g * C/groups + c goes to c * groups + g.
// Shapes: x [N,C,...] -> the same.
// Errors: ShapeError unless groups divides C.
// Source: Zhang et al., "ShuffleNet", CVPR 2018.
class ChannelShuffle final : public LayerWith<ChannelShuffleOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

}  // namespace gradus::nn
