// Winograd convolution F(2x2, 3x3) of channels-last images with 3x3 filters and stride 1, and its gradients: 2.25
// times fewer multiplications than direct convolution. Images are f32, or bf16 on processors without AVX512_BF16.
// Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
#pragma once

#include "gradus/tensor/cpu/conv/kernels.h"

namespace gradus {

// The kernels for this processor.
const ConvKernels& winograd();

}  // namespace gradus
