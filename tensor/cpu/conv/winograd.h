// Convolution of f32 images, without AVX-512 of bf16 ones too, with 3x3 filters in f32 at a stride of 1, and
// its two gradients. Winograd's F(2x2, 3x3) takes 2.25 times fewer multiplications than the definition.
// Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Return whether these kernels serve the convolution of channels-last x to y by filters of shape w, and are
// faster than oneDNN. The first answers for y and for the gradient of x, the second for the gradient of w.
bool prefers_winograd(const Tensor& x, const Tensor& y, const Shape& w, const raw::ConvGeometry& geometry);
bool prefers_winograd_weight_grad(const Tensor& x, const Tensor& y, const Shape& w,
                                  const raw::ConvGeometry& geometry);

// Compute what raw::conv_kernel computes, and without a bias what raw::conv_input_grad_kernel
// and raw::conv_weight_grad_kernel compute.
void winograd_conv(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                   const raw::ConvGeometry& geometry);
void winograd_input_grad(const Tensor& dx, const Tensor& dy, const Tensor& w,
                         const raw::ConvGeometry& geometry);
void winograd_weight_grad(const Tensor& dw, const Tensor& dy, const Tensor& x,
                          const raw::ConvGeometry& geometry);

}  // namespace gradus
