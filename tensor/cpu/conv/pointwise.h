// Convolution of channels-last images by filters of one pixel, without a bias, and its gradients: in f32, and
// in bf16 for processors with AVX-512 bf16.
#pragma once

#include "gradus/tensor/cpu/conv/kernels.h"

namespace gradus {

const ConvKernels& pointwise();

}  // namespace gradus
