// Convolution of channels-last images by filters of one pixel, in f32 and bf16, for processors with AVX-512.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Returns whether these kernels serve the convolution of x by w and are faster than oneDNN, which has to
// reorder the filters first. For the gradient dx pass dx as y and dy as x.
bool prefers_pointwise(const Tensor& y, const Tensor& x, const Shape& w, const raw::ConvGeometry& geometry);

// Compute what raw::conv_kernel and raw::conv_input_grad_kernel compute, without a bias.
void pointwise_conv(const Tensor& y, const Tensor& x, const Tensor& w);
void pointwise_input_grad(const Tensor& dx, const Tensor& dy, const Tensor& w);

}  // namespace gradus
