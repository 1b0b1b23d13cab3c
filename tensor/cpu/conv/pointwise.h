// 1x1 convolution of channels-last images with stride 1, without bias, and its gradients, as matrix products of
// f32 or bf16.
#pragma once

#include "gradus/tensor/cpu/conv/kernels.h"

namespace gradus {

// The kernels for this processor.
const ConvKernels& pointwise();

}  // namespace gradus
