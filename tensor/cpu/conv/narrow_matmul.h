// Products of bf16 matrices on processors that do not multiply bf16.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Computes out[.., M, N] = a[.., M, K] b[.., K, N] + bias[N]. Sums are f32 and rounded once. There is at most one
// batch dim; a and b may have any strides. `out` is row-major, bf16 or f32, the others are bf16. The bias may be
// undefined.
void narrow_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace gradus
