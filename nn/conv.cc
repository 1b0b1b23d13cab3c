#include "gradus/nn/conv.h"

#include <cmath>

#include "gradus/autograd/ops/conv.h"
#include "gradus/nn/init.h"
#include "gradus/tensor/context.h"

namespace gradus::nn {

Tensor Conv2d::initial_weight(const Conv2dOptions& o) {
  if (o.in < 1 || o.out < 1 || o.kernel->h < 1 || o.kernel->w < 1 || o.groups < 1)
    throw ValueError("Conv2d", "expected in, out, kernel, groups >= 1, given in ", *o.in, ", out ", *o.out,
                     ", kernel ", *o.kernel, ", groups ", o.groups);
  if (o.in % o.groups != 0 || o.out % o.groups != 0)
    throw ValueError("Conv2d", "expected in and out to be multiples of groups, given in ", *o.in, ", out ",
                     *o.out, ", groups ", o.groups);
  return init::kaiming_uniform_(
      empty({o.out, o.in / o.groups, o.kernel->h, o.kernel->w}, {.device = Context::current().device}),
      {.a = std::sqrt(5.0)});
}

Tensor Conv2d::initial_bias(const Conv2dOptions& o) {
  if (!o.bias) return {};
  const double bound = 1 / std::sqrt(double(o.in / o.groups * o.kernel->h * o.kernel->w));
  return init::uniform_(empty({o.out}, {.device = Context::current().device}),
                        {.low = -bound, .high = bound});
}

Tensor Conv2d::forward(const Tensor& x) {
  const Conv2dOptions& o = options();
  return conv2d(x, weight, bias,
                {.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups});
}

std::string Conv2d::extra_repr() const {
  const Conv2dOptions& o = options();
  std::string text = concat(*o.in, ", ", *o.out, ", kernel=", *o.kernel);
  if (o.stride != Size2(1)) text += concat(", stride=", o.stride);
  if (o.padding != Size2(0)) text += concat(", padding=", o.padding);
  if (o.dilation != Size2(1)) text += concat(", dilation=", o.dilation);
  if (o.groups != 1) text += concat(", groups=", o.groups);
  if (!o.bias) text += ", bias=false";
  return text;
}

}  // namespace gradus::nn
