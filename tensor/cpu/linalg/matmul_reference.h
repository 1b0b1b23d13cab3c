// The reference matrix product, with Eigen, for any strides. Serves f64 and small f32 products; tests compare the
// fast kernels with it.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// out[.., m, n] = sum_k a[.., m, k] * b[.., k, n] + bias[n]. The tensors have the same floating dtype and the same
// batch dims; `bias` may be undefined.
void matmul_reference(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace gradus
