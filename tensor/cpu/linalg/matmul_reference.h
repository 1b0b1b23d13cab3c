// The readable matrix product, with Eigen. It computes f64, and tests compare the fast f32 kernel with it.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Computes what raw::matmul_kernel computes, for any strides.
void matmul_reference(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace gradus
