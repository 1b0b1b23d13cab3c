// MinibatchStdDev: tells a discriminator how much the images of a batch differ.
#pragma once

#include <memory>

#include "gradus/nn/layer.h"
#include "gradus/nn/layers/statistics_reduction.h"

namespace gradus::nn {

struct MinibatchStdDevOptions {
  int64_t group_size = 4;      // most images in a group
  int64_t channel_groups = 1;  // number of channels to append
  double eps = 1e-8;
};
extern template class ModuleWith<MinibatchStdDevOptions, Layer>;

// Splits the batch into groups: the images n, n + N/group_size, ... are a group. Averages the standard
// deviations of all elements within a group and appends this average as channels. Each of the appended
// channels averages over its share of x's channels.
// Shapes: x [N,C,H,W] -> [N,C+channel_groups,H,W], N at most or a multiple of group_size, C a
// multiple of channel_groups.
// Errors: ShapeError; ValueError for options < 1.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
class MinibatchStdDev final : public LayerWith<MinibatchStdDevOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;

  // In training, the batches of all processes of `reduction` count as one of N size samples. Sample n of rank
  // r is number n size + r there, as in a DataLoader's global batch. The batches must be of one shape. Null:
  // only this process's batch.
  void set_reduction(std::shared_ptr<StatisticsReduction> reduction) { reduction_ = std::move(reduction); }

 private:
  Tensor deviations(const Tensor& batch) const;
  std::shared_ptr<StatisticsReduction> reduction_;
};

}  // namespace gradus::nn
