#include "gradus/nn/pooling.h"

#include "gradus/autograd/ops/pool.h"

namespace gradus::nn {
namespace {

template <class Options>
std::string window_repr(const Options& o) {
  std::string text = concat("kernel=", *o.kernel);
  if (o.stride != Size2(0)) text += concat(", stride=", o.stride);
  if (o.padding != Size2(0)) text += concat(", padding=", o.padding);
  if (o.ceil_mode) text += ", ceil_mode=true";
  return text;
}

}  // namespace

Tensor MaxPool2d::forward(const Tensor& x) { return max_pool2d(x, options()); }
Tensor MaxPool2d::forward_temporary(Tensor&& x) { return max_pool2d(std::move(x), options()); }
std::string MaxPool2d::extra_repr() const {
  return window_repr(options()) +
         (options().dilation == Size2(1) ? "" : concat(", dilation=", options().dilation));
}

Tensor AvgPool2d::forward(const Tensor& x) { return avg_pool2d(x, options()); }
std::string AvgPool2d::extra_repr() const {
  return window_repr(options()) + (options().count_include_pad ? "" : ", count_include_pad=false");
}

Tensor AdaptiveAvgPool2d::forward(const Tensor& x) { return adaptive_avg_pool2d(x, options().output); }
std::string AdaptiveAvgPool2d::extra_repr() const { return concat("output=", *options().output); }

}  // namespace gradus::nn
