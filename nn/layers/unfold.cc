#include "gradus/nn/layers/unfold.h"

namespace gradus::nn {
namespace {

template <class O> std::string window_repr(const O& o) {
  std::string text = concat("kernel=", *o.kernel);
  if (o.stride != Size2(1)) text += concat(", stride=", o.stride);
  if (o.padding != Size2(0)) text += concat(", padding=", o.padding);
  if (o.dilation != Size2(1)) text += concat(", dilation=", o.dilation);
  return text;
}

}  // namespace

Tensor Unfold::forward(const Tensor& x) { return unfold(x, options()); }
std::string Unfold::extra_repr() const { return window_repr(options()); }

Tensor Fold::forward(const Tensor& x) {
  const Options& o = options();
  return fold(x, o.output,
              {.kernel = *o.kernel, .stride = o.stride, .padding = o.padding, .dilation = o.dilation});
}
std::string Fold::extra_repr() const {
  return concat("output=", *options().output, ", ", window_repr(options()));
}

}  // namespace gradus::nn
