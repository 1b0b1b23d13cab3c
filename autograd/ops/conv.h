// Convolution over images, differentiable to any order. Options: gradus/tensor/ops/conv.h.
#pragma once

#include <utility>

#include "gradus/tensor/ops/conv.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Correlates each image with a bank of filters:
//   y[n,o,p,q] = bias[o] + sum over c,i,j of w[o,c,i,j] x[n, group(o) + c, p*stride - padding + i*dilation,
//   q*... + j*...]
// where the C channels of x and the O filters are cut into `groups` independent parts. The result lies
// channels-last. Shapes: x [N,C,H,W], w [O,C/groups,KH,KW], bias [O] or undefined -> y [N,O,P,Q],
//   P = floor((H + 2 padding - dilation (KH-1) - 1) / stride) + 1, Q alike.
// Errors: ShapeError for other dims, channels or groups that do not fit, a filter larger than the padded
// image;
//   ValueError for a stride, dilation or groups below 1 or a negative padding; DTypeError, DeviceError.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dOptions& options = {});

// Returns conv2d's gradient with respect to its x of shape `x_shape`, given that of its result: the
// transposed convolution. Shapes: dy [N,O,P,Q], w [O,C/groups,KH,KW] -> [N,C,H,W].
Tensor conv2d_input_grad(const Tensor& dy, const Tensor& w, const Shape& x_shape,
                         const Conv2dOptions& options = {});

// Returns conv2d's gradients with respect to its w of shape `w_shape` and, if `with_bias`, its bias (else
// undefined). Shapes: dy [N,O,P,Q], x [N,C,H,W] -> [O,C/groups,KH,KW], [O].
std::pair<Tensor, Tensor> conv2d_weight_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape,
                                             bool with_bias, const Conv2dOptions& options = {});

}  // namespace gradus
