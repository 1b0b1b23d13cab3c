// The readable convolution: unfold the image into a matrix of patches, multiply by Eigen. Computes f64, and
// checks the fast f32 kernels. Arguments as for the kernel slots in gradus/tensor/ops/conv.h.
#pragma once

#include "gradus/tensor/ops/conv.h"

namespace gradus {

void conv2d_reference(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                      Conv2dOptions options);
void conv2d_input_grad_reference(const Tensor& dx, const Tensor& dy, const Tensor& w, Conv2dOptions options);
void conv2d_weight_grad_reference(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                                  Conv2dOptions options);

}  // namespace gradus
