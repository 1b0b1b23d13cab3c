// Pooling layers: forward of Pool, which selects the op by the type of the options, and its instantiations.
#include "gradus/nn/layers/pool.h"

namespace gradus::nn {
namespace {

Tensor pool(const Tensor& x, const MaxPool1dOptions& o) { return max_pool1d(x, o); }
Tensor pool(const Tensor& x, const MaxPool2dOptions& o) { return max_pool2d(x, o); }
Tensor pool(const Tensor& x, const MaxPool3dOptions& o) { return max_pool3d(x, o); }
Tensor pool(const Tensor& x, const AvgPool1dOptions& o) { return avg_pool1d(x, o); }
Tensor pool(const Tensor& x, const AvgPool2dOptions& o) { return avg_pool2d(x, o); }
Tensor pool(const Tensor& x, const AvgPool3dOptions& o) { return avg_pool3d(x, o); }
Tensor pool(const Tensor& x, const LpPool1dOptions& o) { return lp_pool1d(x, o); }
Tensor pool(const Tensor& x, const LpPool2dOptions& o) { return lp_pool2d(x, o); }
Tensor pool(const Tensor& x, const AdaptiveAvgPool1dOptions& o) { return adaptive_avg_pool1d(x, o.output); }
Tensor pool(const Tensor& x, const AdaptiveAvgPool2dOptions& o) { return adaptive_avg_pool2d(x, o.output); }
Tensor pool(const Tensor& x, const AdaptiveAvgPool3dOptions& o) { return adaptive_avg_pool3d(x, o.output); }
Tensor pool(const Tensor& x, const AdaptiveMaxPool1dOptions& o) { return adaptive_max_pool1d(x, o.output); }
Tensor pool(const Tensor& x, const AdaptiveMaxPool2dOptions& o) { return adaptive_max_pool2d(x, o.output); }
Tensor pool(const Tensor& x, const AdaptiveMaxPool3dOptions& o) { return adaptive_max_pool3d(x, o.output); }

}  // namespace

template <class O, OptionName N> Tensor Pool<O, N>::forward(const Tensor& x) {
  return pool(x, this->options());
}

template class Pool<MaxPool1dOptions, "MaxPool1d">;
template class Pool<MaxPool2dOptions, "MaxPool2d">;
template class Pool<MaxPool3dOptions, "MaxPool3d">;
template class Pool<AvgPool1dOptions, "AvgPool1d">;
template class Pool<AvgPool2dOptions, "AvgPool2d">;
template class Pool<AvgPool3dOptions, "AvgPool3d">;
template class Pool<LpPool1dOptions, "LPPool1d">;
template class Pool<LpPool2dOptions, "LPPool2d">;
template class Pool<AdaptiveAvgPool1dOptions, "AdaptiveAvgPool1d">;
template class Pool<AdaptiveAvgPool2dOptions, "AdaptiveAvgPool2d">;
template class Pool<AdaptiveAvgPool3dOptions, "AdaptiveAvgPool3d">;
template class Pool<AdaptiveMaxPool1dOptions, "AdaptiveMaxPool1d">;
template class Pool<AdaptiveMaxPool2dOptions, "AdaptiveMaxPool2d">;
template class Pool<AdaptiveMaxPool3dOptions, "AdaptiveMaxPool3d">;

template class ModuleWith<AdaptiveAvgPool1dOptions, Layer>;
template class ModuleWith<AdaptiveAvgPool2dOptions, Layer>;
template class ModuleWith<AdaptiveAvgPool3dOptions, Layer>;
template class ModuleWith<AdaptiveMaxPool1dOptions, Layer>;
template class ModuleWith<AdaptiveMaxPool2dOptions, Layer>;
template class ModuleWith<AdaptiveMaxPool3dOptions, Layer>;
template class ModuleWith<AvgPool1dOptions, Layer>;
template class ModuleWith<AvgPool2dOptions, Layer>;
template class ModuleWith<AvgPool3dOptions, Layer>;
template class ModuleWith<LpPool1dOptions, Layer>;
template class ModuleWith<LpPool2dOptions, Layer>;
template class ModuleWith<MaxPool1dOptions, Layer>;
template class ModuleWith<MaxPool2dOptions, Layer>;
template class ModuleWith<MaxPool3dOptions, Layer>;
}  // namespace gradus::nn
