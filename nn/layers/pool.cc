// Pooling layers: forward of Pool, which selects the op by the type of the options, the size of MaxUnpool's result, and
// the instantiations of both.
#include "gradus/nn/layers/pool.h"

#include "gradus/tensor/base/checked.h"

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
Tensor pool(const Tensor& x, const LpPool3dOptions& o) { return lp_pool3d(x, o); }
Tensor pool(const Tensor& x, const FractionalMaxPool2dOptions& o) { return fractional_max_pool2d(x, o); }
Tensor pool(const Tensor& x, const FractionalMaxPool3dOptions& o) { return fractional_max_pool3d(x, o); }
Tensor pool(const Tensor& x, const AdaptiveAvgPool1dOptions& o) { return adaptive_avg_pool1d(x, o.output); }
Tensor pool(const Tensor& x, const AdaptiveAvgPool2dOptions& o) { return adaptive_avg_pool2d(x, o.output); }
Tensor pool(const Tensor& x, const AdaptiveAvgPool3dOptions& o) { return adaptive_avg_pool3d(x, o.output); }
Tensor pool(const Tensor& x, const AdaptiveMaxPool1dOptions& o) { return adaptive_max_pool1d(x, o.output); }
Tensor pool(const Tensor& x, const AdaptiveMaxPool2dOptions& o) { return adaptive_max_pool2d(x, o.output); }
Tensor pool(const Tensor& x, const AdaptiveMaxPool3dOptions& o) { return adaptive_max_pool3d(x, o.output); }

Dims sizes(int64_t n) { return {n}; }
Dims sizes(Size2 s) { return {s.h, s.w}; }
Dims sizes(Size3 s) { return {s.d, s.h, s.w}; }

}  // namespace

template <class Size, OptionName N>
Tensor MaxUnpool<Size, N>::operator()(const Tensor& x, const Tensor& indices, const Dims& output_size) {
  return this->call([&] {
    const auto& o = this->options();
    const Dims kernel = sizes(*o.kernel), padding = sizes(o.padding),
               stride = o.stride == Size(0) ? kernel : sizes(o.stride);
    const int rank = kernel.size();
    if (x.dim() != rank + 2 && x.dim() != rank + 1)
      throw ShapeError(N.name, "expected x of ", rank + 2, " dims, or ", rank + 1, " without a batch, got ",
                       describe(x));
    if (!output_size.empty() && output_size.size() != rank)
      throw ValueError(N.name, "expected an output_size for each of ", rank, " dims, got ", output_size);
    Dims size;
    for (int d = 0; d < rank; ++d) {
      check_bounds(N.name, "the stride", stride[d], 1);
      const int64_t smallest = Checked(N.name, x.size(x.dim() - rank + d) - 1) * stride[d] -
                               Checked(N.name, padding[d]) * 2 + kernel[d];
      size.push_back(output_size.empty() ? smallest : output_size[d]);
      if (size[d] <= smallest - stride[d] || size[d] >= smallest + stride[d])
        throw ValueError(N.name, "expected an output_size of ", smallest, " or less than ", stride[d],
                         " from it in dim ", d, ", got ", output_size);
    }
    return max_unpool(x, indices, size);
  });
}

template class MaxUnpool<int64_t, "MaxUnpool1d">;
template class MaxUnpool<Size2, "MaxUnpool2d">;
template class MaxUnpool<Size3, "MaxUnpool3d">;

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
template class Pool<LpPool3dOptions, "LPPool3d">;
template class Pool<FractionalMaxPool2dOptions, "FractionalMaxPool2d">;
template class Pool<FractionalMaxPool3dOptions, "FractionalMaxPool3d">;
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
template class ModuleWith<FractionalMaxPool2dOptions, Layer>;
template class ModuleWith<FractionalMaxPool3dOptions, Layer>;
template class ModuleWith<LpPool2dOptions, Layer>;
template class ModuleWith<LpPool3dOptions, Layer>;
template class ModuleWith<MaxPool1dOptions, Layer>;
template class ModuleWith<MaxPool2dOptions, Layer>;
template class ModuleWith<MaxPool3dOptions, Layer>;
template class ModuleWith<MaxUnpoolOptions<int64_t>>;
template class ModuleWith<MaxUnpoolOptions<Size2>>;
template class ModuleWith<MaxUnpoolOptions<Size3>>;
}  // namespace gradus::nn
