// MinibatchStdDev: shows a discriminator how much the images of a batch differ.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct MinibatchStdDevOptions {
  int64_t group_size = 4;      // images that are compared, at most
  int64_t channel_groups = 1;  // channels that are added
  double eps = 1e-8;
};

// Cuts the batch into groups, averages the deviations of all elements within a group, and appends that number
// as channels: the images n, n + N/group_size, ... are a group.
// Shapes: x [N,C,H,W] -> [N,C+channel_groups,H,W], N at most or a multiple of group_size, C a multiple
// of channel_groups. Errors:
// ShapeError.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
class MinibatchStdDev final : public LayerWith<MinibatchStdDevOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

}  // namespace gradus::nn
