// The weight gradient of channels-last 2-dim convolution over bf16 images, for processors with AVX512_BF16.
#pragma once

#include "gradus/tensor/cpu/conv/kernels.h"

namespace gradus {

// Applies to one group, at least 16 channels and at least 8 filters. Has only a weight gradient.
const ConvKernels& bf16_weight_grad();

}  // namespace gradus
