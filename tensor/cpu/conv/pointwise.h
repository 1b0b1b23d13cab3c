// Convolution of channels-last images by filters of one pixel, in f32 and bf16, for processors with AVX-512.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Whether it serves the convolution of x by w, or the gradient dx of one (then y is dx and x is dy), and is
// faster there than oneDNN is with filters that it has to reorder first.
bool pays_pointwise(const Tensor& y, const Tensor& x, const Shape& w, const raw::ConvGeometry& geometry);

// As raw::conv_kernel and raw::conv_input_grad_kernel, without bias.
void pointwise_conv(const Tensor& y, const Tensor& x, const Tensor& w);
void pointwise_input_grad(const Tensor& dx, const Tensor& dy, const Tensor& w);

}  // namespace gradus
