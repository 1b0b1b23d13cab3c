// PixelNorm normalizes the channels of every pixel to a mean square of 1. AdaptiveInstanceNorm is an instance
// norm whose scale and shift are computed from a style vector. MinibatchStdDev appends the standard deviation
// over a group of images as a channel, from which a discriminator can detect a lack of variation.
#pragma once

#include <memory>

#include "gradus/nn/layer.h"
#include "gradus/nn/layers/batch_norm.h"
#include "gradus/nn/layers/linear.h"

namespace gradus::nn {

struct PixelNormOptions {
  double eps = 1e-8;
  bool eps_outside = false;  // true: y = x / (sqrt(mean of x^2) + eps), which has no gradient at x = 0
};
extern template class ModuleWith<PixelNormOptions, Layer>;

// y = x / sqrt(mean over the channels of x^2 + eps)
// Shapes: x [N,C] or [N,C,...] -> the same.
// Errors: ShapeError for an x of fewer than 2 dims.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
class PixelNorm final : public LayerWith<PixelNormOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

struct AdaptiveInstanceNormOptions {
  Required<int64_t, "channels"> channels;
  Required<int64_t, "style"> style;  // size of the style vector w
  double eps = 1e-8;
  double gain = 1;      // of the layer affine: its weight is weight_orig gain / sqrt(style)
  bool add_one = true;  // false: y = instance_norm(x) s0 + s1, and the bias of s0 starts at 1
};
extern template class ModuleWith<AdaptiveInstanceNormOptions>;

// y = instance_norm(x) (s0 + 1) + s1, where [s0, s1] = affine(w). The layer affine has an equalized learning
// rate.
// Shapes: x [N,channels,H,W], w [N,style] -> [N,channels,H,W].
// Errors: ShapeError, DTypeError.
// Source: Karras et al., "A style-based generator architecture for GANs", CVPR 2019.
class AdaptiveInstanceNorm final : public ModuleWith<AdaptiveInstanceNormOptions> {
 public:
  AdaptiveInstanceNorm(Module* parent, std::string name, Options options);
  explicit AdaptiveInstanceNorm(Options options);

  Linear affine{this, "affine", {.in = *options().style, .out = 2 * *options().channels}};

  Tensor forward(const Tensor& x, const Tensor& w);
  Tensor operator()(const Tensor& x, const Tensor& w) { return forward(x, w); }

 private:
  void initialize();
};

struct MinibatchStdDevOptions {
  int64_t group_size = 4;      // maximum number of images per group
  int64_t channel_groups = 1;  // number of channels to append
  double eps = 1e-8;
};
extern template class ModuleWith<MinibatchStdDevOptions, Layer>;

// Divides the batch into groups: images n, n + N/group_size, n + 2 N/group_size, ... form a group (all
// images if N < group_size). Computes the group's standard deviation of each element, averages it over
// C/channel_groups channels and all positions, and appends the averages to each image of the group as
// channel_groups constant channels.
// Shapes: x [N,C,H,W] -> [N,C+channel_groups,H,W], N at most or a multiple of group_size, C a
// multiple of channel_groups.
// Errors: ShapeError; ValueError for options < 1.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
class MinibatchStdDev final : public LayerWith<MinibatchStdDevOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;

  // In training, groups are formed over the batches of all ranks of `reduction` together, N * size samples in
  // which sample n of rank r has index n * size + r, as in a DataLoader's global batch. Calls then are
  // collective, and all ranks' batches must have one shape. Null: over this rank's batch alone.
  void set_reduction(std::shared_ptr<StatisticsReduction> reduction) { reduction_ = std::move(reduction); }

 private:
  Tensor group_stddev(const Tensor& batch) const;
  std::shared_ptr<StatisticsReduction> reduction_;
};

}  // namespace gradus::nn
