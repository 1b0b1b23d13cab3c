// The gradients of channels-last convolution over images, where the result's gradient dy is mostly zeros.
// Below a max pooling it is: a 2x2 window passes its gradient to one of four pixels. These kernels visit the
// nonzeros of dy alone. Images are f32, without AVX-512 bf16 too, and filters f32.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Returns whether visiting the nonzeros alone pays. It does with one group, filters w[O,C,KH,KW] of the
// sizes that there are kernels for and O a multiple of a register's numbers, no horizontal dilation, and few
// nonzeros in a sample of dy.
bool prefers_sparse_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape,
                         const raw::ConvGeometry& geometry);

// Compute what raw::conv_weight_grad_kernel and raw::conv_input_grad_kernel compute.
void sparse_weight_grad(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                        const raw::ConvGeometry& geometry);
void sparse_input_grad(const Tensor& dx, const Tensor& dy, const Tensor& w,
                       const raw::ConvGeometry& geometry);

}  // namespace gradus
