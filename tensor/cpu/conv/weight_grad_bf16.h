// The weight gradient of channels-last convolution over bf16 images, for processors with AVX512-BF16.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Whether the kernel serves this problem: bf16 images, one group, enough channels, and the processor.
bool has_bf16_weight_grad(const Tensor& dy, const Tensor& x, const raw::ConvGeometry& geometry);

// As raw::conv_weight_grad_kernel; dw and db are bf16 or f32.
void bf16_weight_grad(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                      const raw::ConvGeometry& geometry);

}  // namespace gradus
