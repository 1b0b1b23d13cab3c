// Convolution of f32 images, without AVX-512 of bf16 ones too, with 4x4 filters in f32, a stride of 2 and a
// padding of 1, which halves images, and its two gradients. Networks of GANs consist of it. Winograd's
// F(2x2, 2x2) takes 1.78 times fewer multiplications than the definition.
// Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Return whether these kernels serve the convolution of channels-last x to y by filters of shape w, and are
// faster than oneDNN.
bool prefers_winograd_halving(const Tensor& x, const Tensor& y, const Shape& w,
                              const raw::ConvGeometry& geometry);
bool prefers_winograd_halving_grad(const Tensor& x, const Tensor& y, const Shape& w,
                                   const raw::ConvGeometry& geometry);  // of x
bool prefers_winograd_halving_weight_grad(const Tensor& x, const Tensor& y, const Shape& w,
                                          const raw::ConvGeometry& geometry);

// Compute what raw::conv_kernel computes, and without a bias what raw::conv_input_grad_kernel
// and raw::conv_weight_grad_kernel compute.
void winograd_halving(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias);
void winograd_halving_grad(const Tensor& dx, const Tensor& dy, const Tensor& w);
void winograd_halving_weight_grad(const Tensor& dw, const Tensor& dy, const Tensor& x);

}  // namespace gradus
