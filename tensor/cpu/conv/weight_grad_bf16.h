// The weight gradient of channels-last convolution over bf16 images, for processors with AVX512-BF16.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Returns whether the kernel serves this problem: bf16 images, one group, enough channels, and a
// processor with AVX512-BF16.
bool has_bf16_weight_grad(const Tensor& dy, const Tensor& x, const raw::ConvGeometry& geometry);

// Computes what raw::conv_weight_grad_kernel computes. dw and db are bf16 or f32.
void bf16_weight_grad(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                      const raw::ConvGeometry& geometry);

}  // namespace gradus
