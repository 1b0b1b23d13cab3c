// Convolution of f32 images, without AVX-512 of bf16 ones too, with 3x3 filters at a stride of 1, and its two
// gradients. Winograd's F(2x2, 3x3) takes 2.25 times fewer multiplications than the definition.
// Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
#pragma once

#include "gradus/tensor/cpu/conv/kernels.h"

namespace gradus {

const ConvKernels& winograd();

}  // namespace gradus
