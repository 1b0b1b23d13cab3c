// The f32 gradients of channels-last convolution over images when the result's gradient is mostly zeros, as
// it is below a max pooling: a 2x2 window passes its gradient to one of four. Only the others are worked on.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

// Whether visiting the nonzeros of dy alone pays: a processor with AVX-512, one group, filters
// w[O,C,KH,KW] in multiples of 16 and of a size that registers hold, no horizontal dilation, and few
// nonzeros in a sample of dy.
bool pays_sparse_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape,
                      const raw::ConvGeometry& geometry);

// As raw::conv2d_weight_grad_kernel and raw::conv2d_input_grad_kernel.
void sparse_weight_grad(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                        const raw::ConvGeometry& geometry);
void sparse_input_grad(const Tensor& dx, const Tensor& dy, const Tensor& w,
                       const raw::ConvGeometry& geometry);

}  // namespace gradus
