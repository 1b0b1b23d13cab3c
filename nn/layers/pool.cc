#include "gradus/nn/layers/pool.h"

namespace gradus::nn {
namespace {

// One overload of `pool` for each kind of layer.
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

template <class O> Tensor Pool<O>::forward(const Tensor& x) { return pool(x, this->options()); }

template <class O> std::string Pool<O>::extra_repr() const {
  const O& o = this->options();
  if constexpr (requires { o.output; }) {
    return concat("output=", *o.output);
  } else {
    std::string text;
    if constexpr (requires { o.p; }) text += concat("p=", *o.p, ", ");
    text += concat("kernel=", *o.kernel);
    if (o.stride != decltype(o.stride)(0)) text += concat(", stride=", o.stride);
    if constexpr (requires { o.padding; })
      if (o.padding != decltype(o.padding)(0)) text += concat(", padding=", o.padding);
    if (o.ceil_mode) text += ", ceil_mode=true";
    if constexpr (requires { o.dilation; })
      if (o.dilation != decltype(o.dilation)(1)) text += concat(", dilation=", o.dilation);
    if constexpr (requires { o.count_include_pad; })
      if (!o.count_include_pad) text += ", count_include_pad=false";
    if constexpr (requires { o.divisor_override; })
      if (o.divisor_override) text += concat(", divisor_override=", o.divisor_override);
    return text;
  }
}

template class Pool<MaxPool1dOptions>;
template class Pool<MaxPool2dOptions>;
template class Pool<MaxPool3dOptions>;
template class Pool<AvgPool1dOptions>;
template class Pool<AvgPool2dOptions>;
template class Pool<AvgPool3dOptions>;
template class Pool<LpPool1dOptions>;
template class Pool<LpPool2dOptions>;
template class Pool<AdaptiveAvgPool1dOptions>;
template class Pool<AdaptiveAvgPool2dOptions>;
template class Pool<AdaptiveAvgPool3dOptions>;
template class Pool<AdaptiveMaxPool1dOptions>;
template class Pool<AdaptiveMaxPool2dOptions>;
template class Pool<AdaptiveMaxPool3dOptions>;

}  // namespace gradus::nn
