// The f32 gradients of weight and bias of channels-last convolution, for processors with AVX-512. The kernel
// neither reorders images nor adds sums of several threads. Without a bias oneDNN is as fast or faster.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Returns whether the kernel serves this problem: one group, no horizontal dilation, filters in multiples of
// 16, and a processor with AVX-512.
bool has_fast_weight_grad(const Tensor& dw, const raw::ConvGeometry& geometry);

// Computes what raw::conv_weight_grad_kernel computes.
void fast_weight_grad(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                      const raw::ConvGeometry& geometry);

}  // namespace gradus
