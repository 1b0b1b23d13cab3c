// The gradients of channels-last convolution over images, where the result's gradient dy is mostly zeros.
// Below a max pooling it is: a 2x2 window passes its gradient to one of four pixels. These kernels visit the
// nonzeros of dy alone. Images are f32, without AVX-512 bf16 too.
#pragma once

#include "gradus/tensor/cpu/conv/kernels.h"

namespace gradus {

// For one group, filters of the sizes that there are kernels for, filters in multiples of a register's
// numbers, no horizontal dilation, and few nonzeros in a sample of dy.
const ConvKernels& sparse_grad();

}  // namespace gradus
