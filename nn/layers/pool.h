// Pooling layers over signals, images and volumes; each applies the op of the same name, which documents
// options, shapes and the errors of a call (gradus/autograd/ops/images/pool.h). Inputs may have no batch dim.
#pragma once

#include "gradus/autograd/ops/images/pool.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

// Options of the adaptive layers. output: the spatial size of the result.
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

// A pooling layer. The type O of the options selects the op (pool.cc); N is the class's name.
template <class O, OptionName N> class Pool final : public LayerWith<O> {
 public:
  using LayerWith<O>::LayerWith;
  Tensor forward(const Tensor& x) override;
  std::string type_name() const override { return N.name; }
};

extern template class ModuleWith<MaxPool1dOptions, Layer>;
extern template class ModuleWith<MaxPool2dOptions, Layer>;
extern template class ModuleWith<MaxPool3dOptions, Layer>;
extern template class ModuleWith<AvgPool1dOptions, Layer>;
extern template class ModuleWith<AvgPool2dOptions, Layer>;
extern template class ModuleWith<AvgPool3dOptions, Layer>;
extern template class ModuleWith<LpPool1dOptions, Layer>;
extern template class ModuleWith<LpPool2dOptions, Layer>;
extern template class ModuleWith<LpPool3dOptions, Layer>;
extern template class ModuleWith<FractionalMaxPool2dOptions, Layer>;
extern template class ModuleWith<FractionalMaxPool3dOptions, Layer>;

// The maximum of each window.
using MaxPool1d = Pool<MaxPool1dOptions, "MaxPool1d">;
using MaxPool2d = Pool<MaxPool2dOptions, "MaxPool2d">;
using MaxPool3d = Pool<MaxPool3dOptions, "MaxPool3d">;
// The mean of each window.
using AvgPool1d = Pool<AvgPool1dOptions, "AvgPool1d">;
using AvgPool2d = Pool<AvgPool2dOptions, "AvgPool2d">;
using AvgPool3d = Pool<AvgPool3dOptions, "AvgPool3d">;
// The p-th root of the sum of each window's p-th powers.
using LPPool1d = Pool<LpPool1dOptions, "LPPool1d">;
using LPPool2d = Pool<LpPool2dOptions, "LPPool2d">;
using LPPool3d = Pool<LpPool3dOptions, "LPPool3d">;
// The maximum of each of `output` windows at random positions. fractional_max_pool2d_with_indices also returns the
// maxima's positions.
using FractionalMaxPool2d = Pool<FractionalMaxPool2dOptions, "FractionalMaxPool2d">;
using FractionalMaxPool3d = Pool<FractionalMaxPool3dOptions, "FractionalMaxPool3d">;
// The means, or maxima, of `output` windows that cover each sample; the op documents their bounds.
using AdaptiveAvgPool1d = Pool<AdaptiveAvgPool1dOptions, "AdaptiveAvgPool1d">;
using AdaptiveAvgPool2d = Pool<AdaptiveAvgPool2dOptions, "AdaptiveAvgPool2d">;
using AdaptiveAvgPool3d = Pool<AdaptiveAvgPool3dOptions, "AdaptiveAvgPool3d">;
using AdaptiveMaxPool1d = Pool<AdaptiveMaxPool1dOptions, "AdaptiveMaxPool1d">;
using AdaptiveMaxPool2d = Pool<AdaptiveMaxPool2dOptions, "AdaptiveMaxPool2d">;
using AdaptiveMaxPool3d = Pool<AdaptiveMaxPool3dOptions, "AdaptiveMaxPool3d">;

// Options of max pooling whose partial inverse is wanted.
template <class Size> struct MaxUnpoolOptions {
  Required<Size, "kernel"> kernel;
  Size stride = 0;  // 0: the kernel's size
  Size padding = 0;
};
extern template class ModuleWith<MaxUnpoolOptions<int64_t>>;
extern template class ModuleWith<MaxUnpoolOptions<Size2>>;
extern template class ModuleWith<MaxUnpoolOptions<Size3>>;

// Applies max_unpool to maxima x and their indices, results of max_pool2d_with_indices. output_size, the spatial size
// of the result, may be less than a stride away from (size - 1) stride - 2 padding + kernel, the default.
// Errors: ValueError for another output_size, and those of max_unpool.
template <class Size, OptionName N> class MaxUnpool final : public ModuleWith<MaxUnpoolOptions<Size>> {
 public:
  using ModuleWith<MaxUnpoolOptions<Size>>::ModuleWith;
  Tensor operator()(const Tensor& x, const Tensor& indices, const Dims& output_size = {});
  std::string type_name() const override { return N.name; }
};
using MaxUnpool1d = MaxUnpool<int64_t, "MaxUnpool1d">;
using MaxUnpool2d = MaxUnpool<Size2, "MaxUnpool2d">;
using MaxUnpool3d = MaxUnpool<Size3, "MaxUnpool3d">;

}  // namespace gradus::nn
