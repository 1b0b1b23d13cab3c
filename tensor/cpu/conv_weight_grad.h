// The f32 weight gradient of channels-last convolution, for processors with AVX-512. oneDNN 2.6 computes it
// at two thirds of its own blocked layout's speed, and its bias gradient slower still; this kernel needs no
// reordering and no reduction over threads.
#pragma once

#include "gradus/tensor/ops/conv.h"

namespace gradus {

// Whether the kernel serves this problem: one group, no horizontal dilation, filters in multiples of 16, and
// the processor.
bool has_fast_weight_grad(const Tensor& dw, const raw::ConvGeometry& geometry);

// As raw::conv2d_weight_grad_kernel.
void fast_weight_grad(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                      const raw::ConvGeometry& geometry);

}  // namespace gradus
