// The readable matrix product, by Eigen: computes f64, and checks the fast f32 kernel.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// As raw::matmul_kernel, with any strides.
void matmul_reference(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace gradus
