// Convolution of f32 images, without AVX-512 of bf16 ones too, with 4x4 filters, a stride of 2 and a padding
// of 1, which halves images, and its two gradients. Networks of GANs consist of it. Winograd's F(2x2, 2x2)
// takes 1.78 times fewer multiplications than the definition.
// Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
#pragma once

#include "gradus/tensor/cpu/conv/kernels.h"

namespace gradus {

const ConvKernels& winograd_halving();

}  // namespace gradus
