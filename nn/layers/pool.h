// Pooling layers over signals, images and volumes; each applies the op of the same name
// (gradus/autograd/ops/images/pool.h). Inputs may have no batch dim.
#pragma once

#include "gradus/autograd/ops/images/pool.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

struct AdaptiveAvgPool1dOptions {
  Required<int64_t, "output"> output;
};
extern template class ModuleWith<AdaptiveAvgPool1dOptions, Layer>;
struct AdaptiveAvgPool2dOptions {
  Required<Size2, "output"> output;
};
extern template class ModuleWith<AdaptiveAvgPool2dOptions, Layer>;
struct AdaptiveAvgPool3dOptions {
  Required<Size3, "output"> output;
};
extern template class ModuleWith<AdaptiveAvgPool3dOptions, Layer>;
struct AdaptiveMaxPool1dOptions {
  Required<int64_t, "output"> output;
};
extern template class ModuleWith<AdaptiveMaxPool1dOptions, Layer>;
struct AdaptiveMaxPool2dOptions {
  Required<Size2, "output"> output;
};
extern template class ModuleWith<AdaptiveMaxPool2dOptions, Layer>;
struct AdaptiveMaxPool3dOptions {
  Required<Size3, "output"> output;
};
extern template class ModuleWith<AdaptiveMaxPool3dOptions, Layer>;

// Base of the pooling layers. The options O select the op.
template <class O> class Pool : public LayerWith<O> {
 public:
  using LayerWith<O>::LayerWith;
  Tensor forward(const Tensor& x) override;
};

extern template class ModuleWith<MaxPool1dOptions, Layer>;

// The maximum of each window.
class MaxPool1d final : public Pool<MaxPool1dOptions> {
 public:
  using Pool::Pool;
};
extern template class ModuleWith<MaxPool2dOptions, Layer>;

class MaxPool2d final : public Pool<MaxPool2dOptions> {
 public:
  using Pool::Pool;
};
extern template class ModuleWith<MaxPool3dOptions, Layer>;

class MaxPool3d final : public Pool<MaxPool3dOptions> {
 public:
  using Pool::Pool;
};

extern template class ModuleWith<AvgPool1dOptions, Layer>;

// The mean of each window.
class AvgPool1d final : public Pool<AvgPool1dOptions> {
 public:
  using Pool::Pool;
};
extern template class ModuleWith<AvgPool2dOptions, Layer>;

class AvgPool2d final : public Pool<AvgPool2dOptions> {
 public:
  using Pool::Pool;
};
extern template class ModuleWith<AvgPool3dOptions, Layer>;

class AvgPool3d final : public Pool<AvgPool3dOptions> {
 public:
  using Pool::Pool;
};

extern template class ModuleWith<LpPool1dOptions, Layer>;

// The p-th root of the sum of each window's p-th powers.
class LPPool1d final : public Pool<LpPool1dOptions> {
 public:
  using Pool::Pool;
};
extern template class ModuleWith<LpPool2dOptions, Layer>;

class LPPool2d final : public Pool<LpPool2dOptions> {
 public:
  using Pool::Pool;
};

// The means, or maxima, of `output` windows that cover each sample.
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
