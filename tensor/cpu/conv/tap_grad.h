// The f32 weight gradient of channels-last convolution over images, tap by tap of the filters, for
// processors with AVX-512.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Returns whether the kernel serves this problem and is faster than oneDNN.
bool prefers_tap_weight_grad(const Tensor& dw, const Tensor& dy, const raw::ConvGeometry& geometry);

// Computes what raw::conv_weight_grad_kernel computes, without a bias.
void tap_weight_grad(const Tensor& dw, const Tensor& dy, const Tensor& x, const raw::ConvGeometry& geometry);

}  // namespace gradus
