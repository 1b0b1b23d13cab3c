// Raw convolution and its two gradients: three bilinear ops, each one's derivative made of the other two. The
// differentiable forms are in gradus/autograd/ops/conv.h.
#pragma once

#include <utility>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// How a filter moves over an image.
struct Conv2dOptions {
  Size2 stride = 1;
  Size2 padding = 0;   // zeros on every side
  Size2 dilation = 1;  // distance between the filter's taps
  int64_t groups = 1;  // channels in independent groups
};

namespace raw {

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& options = {});
// The gradient of conv2d's x[N,C,H,W] = `x_shape` when that of its result is dy.
Tensor conv2d_input_grad(const Tensor& dy, const Tensor& w, const Shape& x_shape,
                         const Conv2dOptions& options = {});
// The gradients of conv2d's w[O,C/groups,KH,KW] = `w_shape` and, if `with_bias`, of its bias (else
// undefined).
std::pair<Tensor, Tensor> conv2d_weight_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape,
                                             bool with_bias, const Conv2dOptions& options = {});

// Kernels: one floating dtype; x, y and their gradients dense with channels innermost, w and bias row-major
// (bias and db may be undefined), no empty tensors.
inline constinit KernelSlot<void(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                                 Conv2dOptions)>
    conv2d_kernel{"conv2d"};
inline constinit KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& w, Conv2dOptions)>
    conv2d_input_grad_kernel{"conv2d_input_grad"};
inline constinit KernelSlot<void(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                                 Conv2dOptions)>
    conv2d_weight_grad_kernel{"conv2d_weight_grad"};

}  // namespace raw
}  // namespace gradus
