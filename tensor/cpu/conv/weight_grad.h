// The f32 gradients of weight and bias of channels-last convolution, for processors with AVX-512: without
// reordering and without a reduction over threads. Where there is no bias, oneDNN is as fast or faster.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Whether the kernel serves this problem: one group, no horizontal dilation, filters in multiples of 16,
// and the processor.
bool has_fast_weight_grad(const Tensor& dw, const raw::ConvGeometry& geometry);

// As raw::conv2d_weight_grad_kernel.
void fast_weight_grad(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                      const raw::ConvGeometry& geometry);

}  // namespace gradus
