// Convolution of f32 images with 3x3 filters at a stride of 1, and its two gradients, with 2.25 times fewer
// multiplications than the definition has: Winograd's F(2x2, 3x3), for processors with AVX-512.
// Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Whether it serves the convolution of channels-last x to y by filters of shape w, and is faster there than
// oneDNN: for y or the gradient of x, and for that of w.
bool prefers_winograd(const Tensor& x, const Tensor& y, const Shape& w, const raw::ConvGeometry& geometry);
bool pays_winograd_weight_grad(const Tensor& x, const Tensor& y, const Shape& w,
                               const raw::ConvGeometry& geometry);

// As raw::conv_kernel, raw::conv_input_grad_kernel without bias, and
// raw::conv_weight_grad_kernel without bias.
void winograd_conv(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                   const raw::ConvGeometry& geometry);
void winograd_input_grad(const Tensor& dx, const Tensor& dy, const Tensor& w,
                         const raw::ConvGeometry& geometry);
void winograd_weight_grad(const Tensor& dw, const Tensor& dy, const Tensor& x,
                          const raw::ConvGeometry& geometry);

}  // namespace gradus
