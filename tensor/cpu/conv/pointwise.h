// Convolution of channels-last images by filters of one pixel, in f32, and in bf16 for processors
// with AVX-512 bf16.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Returns whether these kernels serve the convolution of x by w and are faster than oneDNN, which has to
// reorder the filters first. For the gradient dx pass dx as y and dy as x.
bool prefers_pointwise(const Tensor& y, const Tensor& x, const Shape& w, const raw::ConvGeometry& geometry);

// The same for the gradient of w.
bool prefers_pointwise_weight_grad(const Tensor& dy, const Tensor& x, const Shape& w,
                                   const raw::ConvGeometry& geometry);

// Compute what raw::conv_kernel and raw::conv_input_grad_kernel compute, without a bias, and what
// raw::conv_weight_grad_kernel computes.
void pointwise_conv(const Tensor& y, const Tensor& x, const Tensor& w);
void pointwise_input_grad(const Tensor& dx, const Tensor& dy, const Tensor& w);
void pointwise_weight_grad(const Tensor& dw, const Tensor& dy, const Tensor& x);

}  // namespace gradus
