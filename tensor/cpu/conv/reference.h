// The readable convolution: unfolds the image into a matrix of patches and multiplies with Eigen.
// It computes f64, and tests compare the fast f32 kernels with it. Arguments as for the kernel
// slots in gradus/tensor/ops/images/conv.h.
#pragma once

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

void conv_reference(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const raw::ConvGeometry& geometry);
void conv_input_grad_reference(const Tensor& dx, const Tensor& dy, const Tensor& w,
                               const raw::ConvGeometry& geometry);
void conv_weight_grad_reference(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                                const raw::ConvGeometry& geometry);

}  // namespace gradus
