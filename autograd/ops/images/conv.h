// Convolution over signals, images and volumes, and its transpose, differentiable to any order. Options of
// convolution (gradus/tensor/ops/images/conv.h): stride, padding (zeros on both sides), dilation and groups,
// by default 1, 0, 1 and 1, and same_padding, which pads to keep the size (an odd zero at the end).
#pragma once

#include <utility>

#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Cross-correlates each image with O filters:
//   y[n,o,p,q] = bias[o] + sum over c,i,j of
//       w[o,c,i,j] x[n, group(o) + c, p*stride - padding + i*dilation, q*stride - padding + j*dilation]
// The C channels of x and the O filters are divided into `groups` independent groups; group(o) is the first
// channel of o's group. The result is channels-last. Computes in f64, in f32, or in bf16 with f32 sums. f16
// is computed in f32 and rounded once.
// Shapes: x [N,C,H,W] or [C,H,W], w [O,C/groups,KH,KW], bias [O] or undefined -> y [N,O,P,Q] or [O,P,Q],
//   P = floor((H + 2 padding - dilation (KH-1) - 1) / stride) + 1, Q alike.
// Errors, also of the other convolutions: ShapeError for other dims, channels or groups that do not fit, a
// filter larger than the padded image; ValueError for a stride, dilation or groups below 1, a negative
// padding, or same_padding together with a padding or a stride; DTypeError, DeviceError.
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
              const Conv2dFuncOptions& options = {});

// Returns relu(conv2d(x, w, bias, options)), on a GPU in one pass if there is a bias.
Tensor conv2d_relu(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                   const Conv2dFuncOptions& options = {});

// conv1d and conv3d: conv2d over signals and over volumes.
// Shapes: x [N,C,L] or [C,L], w [O,C/groups,K], bias [O] or undefined -> y [N,O,P] or [O,P].
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
              const Conv1dFuncOptions& options = {});
// Shapes: x [N,C,D,H,W] or [C,D,H,W], w [O,C/groups,KD,KH,KW], bias [O] or undefined -> y
// [N,O,P,Q,R] or [O,P,Q,R].
Tensor conv3d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
              const Conv3dFuncOptions& options = {});

// Return the gradient of conv2d, or conv3d, with respect to its x of shape `x_shape`, given the gradient dy
// of its result. This is the transposed convolution.
// Shapes: dy [N,O,P,Q], w [O,C/groups,KH,KW] -> [N,C,H,W].
// Errors, also of the weight gradients: ShapeError unless dy has the shape of the convolution's result.
Tensor conv2d_input_grad(const Tensor& dy, const Tensor& w, const Shape& x_shape,
                         const Conv2dFuncOptions& options = {});
Tensor conv3d_input_grad(const Tensor& dy, const Tensor& w, const Shape& x_shape,
                         const Conv3dFuncOptions& options = {});

// Return the gradients of conv2d, or conv3d, with respect to its w of shape `w_shape` and to its bias.
// Without `with_bias` the bias's gradient is undefined.
// Shapes: dy [N,O,P,Q], x [N,C,H,W] -> [O,C/groups,KH,KW], [O].
std::pair<Tensor, Tensor> conv2d_weight_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape,
                                             bool with_bias, const Conv2dFuncOptions& options = {});
std::pair<Tensor, Tensor> conv3d_weight_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape,
                                             bool with_bias, const Conv3dFuncOptions& options = {});

// Options of transposed convolutions whose sizes are of type Size: int64_t, Size2 or Size3.
template <class Size> struct ConvTransposeFuncOptions {
  Size stride = 1;
  Size padding = 0;         // elements removed from both ends of the result
  Size output_padding = 0;  // elements added to the end of the result; less than stride or dilation
  Size dilation = 1;
  int64_t groups = 1;
};
using ConvTranspose1dFuncOptions = ConvTransposeFuncOptions<int64_t>;
using ConvTranspose2dFuncOptions = ConvTransposeFuncOptions<Size2>;
using ConvTranspose3dFuncOptions = ConvTransposeFuncOptions<Size3>;

// Transposed convolution, the gradient of conv2d with respect to its input. Each x[n,c,h,w] adds
// x[n,c,h,w] w[c,o,i,j], for all o,i,j, to
//   y[n, group(c) + o, h*stride - padding + i*dilation, w*stride - padding + j*dilation],
// where group(c) is the first output channel of c's group. The bias is then added to each output channel.
// Shapes: x [N,C,H,W] or [C,H,W], w [C,O/groups,KH,KW], bias [O] or undefined -> y [N,O,P,Q] or [O,P,Q],
//   P = (H - 1) stride - 2 padding + dilation (KH-1) + output_padding + 1, Q alike.
// Errors, also of the 1d and 3d forms: ShapeError for other dims, channels or groups that do not fit, or an
// empty result; ValueError for a stride, dilation or groups below 1, a negative padding, an output_padding
// below 0 or not below stride or dilation; DTypeError, DeviceError.
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const ConvTranspose2dFuncOptions& options = {});
// The same over signals.
// Shapes: x [N,C,L] or [C,L], w [C,O/groups,K], bias [O] or undefined.
Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const ConvTranspose1dFuncOptions& options = {});
// The same over volumes.
// Shapes: x [N,C,D,H,W] or [C,D,H,W], w [C,O/groups,KD,KH,KW], bias [O] or undefined.
Tensor conv_transpose3d(const Tensor& x, const Tensor& w, const Tensor& bias = {},
                        const ConvTranspose3dFuncOptions& options = {});

}  // namespace gradus
