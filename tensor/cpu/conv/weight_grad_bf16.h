// The weight gradient of channels-last convolution over bf16 images, for processors with AVX512-BF16.
#pragma once

#include "gradus/tensor/cpu/conv/kernels.h"

namespace gradus {

// For one group, and enough channels and filters.
const ConvKernels& pairs_of_pixels();

}  // namespace gradus
