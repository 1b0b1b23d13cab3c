// Products of bf16 matrices on processors without bf16 instructions: computed in f32, converted on the fly.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// out[.., m, n] = sum_k a[.., m, k] * b[.., k, n] + bias[n], summed in f32 and rounded once. There is at most one
// batch dim. a, b and bias are bf16 with any strides; `out` is row-major, bf16 or f32. `bias` may be undefined.
void narrow_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace gradus
