// Pooling layers over signals, images and volumes: the ops of their names as layers. Samples without a batch
// dim are accepted.
#pragma once

#include "gradus/autograd/ops/images/pool.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

struct AdaptiveAvgPool1dOptions {
  Required<int64_t, "output"> output;
};
struct AdaptiveAvgPool2dOptions {
  Required<Size2, "output"> output;
};
struct AdaptiveAvgPool3dOptions {
  Required<Size3, "output"> output;
};
struct AdaptiveMaxPool1dOptions {
  Required<int64_t, "output"> output;
};
struct AdaptiveMaxPool2dOptions {
  Required<Size2, "output"> output;
};
struct AdaptiveMaxPool3dOptions {
  Required<Size3, "output"> output;
};

// Base of the pooling layers. The options O select the op.
template <class O> class Pool : public LayerWith<O> {
 public:
  using LayerWith<O>::LayerWith;
  Tensor forward(const Tensor& x) override;
};

// Take the maximum of each window.
class MaxPool1d final : public Pool<MaxPool1dOptions> {
 public:
  using Pool::Pool;
};
class MaxPool2d final : public Pool<MaxPool2dOptions> {
 public:
  using Pool::Pool;
};
class MaxPool3d final : public Pool<MaxPool3dOptions> {
 public:
  using Pool::Pool;
};

// Take the mean of each window.
class AvgPool1d final : public Pool<AvgPool1dOptions> {
 public:
  using Pool::Pool;
};
class AvgPool2d final : public Pool<AvgPool2dOptions> {
 public:
  using Pool::Pool;
};
class AvgPool3d final : public Pool<AvgPool3dOptions> {
 public:
  using Pool::Pool;
};

// Take the p-th root of the sum of each window's p-th powers.
class LPPool1d final : public Pool<LpPool1dOptions> {
 public:
  using Pool::Pool;
};
class LPPool2d final : public Pool<LpPool2dOptions> {
 public:
  using Pool::Pool;
};

// Cut each sample into `output` windows and take their means, or their maxima.
class AdaptiveAvgPool1d final : public Pool<AdaptiveAvgPool1dOptions> {
 public:
  using Pool::Pool;
};
class AdaptiveAvgPool2d final : public Pool<AdaptiveAvgPool2dOptions> {
 public:
  using Pool::Pool;
};
class AdaptiveAvgPool3d final : public Pool<AdaptiveAvgPool3dOptions> {
 public:
  using Pool::Pool;
};
class AdaptiveMaxPool1d final : public Pool<AdaptiveMaxPool1dOptions> {
 public:
  using Pool::Pool;
};
class AdaptiveMaxPool2d final : public Pool<AdaptiveMaxPool2dOptions> {
 public:
  using Pool::Pool;
};
class AdaptiveMaxPool3d final : public Pool<AdaptiveMaxPool3dOptions> {
 public:
  using Pool::Pool;
};

}  // namespace gradus::nn
