// Input and weight gradients of channels-last 2-dim convolution for a mostly zero output gradient dy, as max
// pooling gives it: a 2x2 window passes its gradient to one of four pixels. These kernels visit only the nonzeros
// of dy. Images are f32, or bf16 on processors without AVX512_BF16.
#pragma once

#include "gradus/tensor/cpu/conv/kernels.h"

namespace gradus {

// Applies to one group, 3x3 and 5x5 filters with some numbers of channels (kKernels), a number of filters that is
// divisible by the vector length, no horizontal dilation, and few nonzeros in a sample of dy.
const ConvKernels& sparse_grad();

}  // namespace gradus
