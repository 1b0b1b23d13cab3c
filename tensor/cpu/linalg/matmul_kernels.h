// Matrix products on the CPU without oneDNN: the reference, small f32 products, and bf16 products on processors
// without bf16 instructions. out is [.., M, N], a [.., M, K], b [.., K, N], bias [N]. Callers check shapes and dtypes.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// out[.., m, n] = sum_k a[.., m, k] * b[.., k, n] + bias[n]. The tensors are f32 or f64, all of one dtype,
// with any strides and the same batch dims; `bias` is row-major or undefined.
void matmul_reference(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias);

// As matmul_reference for f32 matrices without batch dims; `out` is row-major, and no size is above
// kMaxSmallSize.
inline constexpr int64_t kMaxSmallSize = 64;
void small_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias);

// out[.., m, n] = sum_k a[.., m, k] * b[.., k, n] + bias[n], converted to f32 on the fly, summed in f32 and
// rounded once. There is at most one batch dim, and K > 0. a, b and bias are bf16 with any strides; `out` is
// row-major, bf16 or f32. `bias` may be undefined.
void narrow_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace gradus
