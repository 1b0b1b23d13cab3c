// Pooling layers.
#pragma once

#include "gradus/nn/layer.h"
#include "gradus/tensor/ops/pool.h"

namespace gradus::nn {

// Takes the maximum of each window: max_pool2d.
class MaxPool2d final : public LayerWith<MaxPool2dOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 private:
  Tensor forward_temporary(Tensor&& x) override;
};

// Takes the mean of each window: avg_pool2d.
class AvgPool2d final : public LayerWith<AvgPool2dOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

struct AdaptiveAvgPool2dOptions {
  Required<Size2> output;
};

// Cuts each image into `output` windows and takes their means: adaptive_avg_pool2d.
class AdaptiveAvgPool2d final : public LayerWith<AdaptiveAvgPool2dOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

}  // namespace gradus::nn
