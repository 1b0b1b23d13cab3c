// Matrix products, differentiable.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Multiplies matrices: y[..., M, N] = a[..., M, K] b[..., K, N]; batch dims broadcast. A vector counts as a
// row on the left and as a column on the right; the result lacks that dim. Transposed operands are read in
// place. Computed in f64, f32 or bf16 with sums in f32. f16 is computed in f32 and rounded once.
// Shapes: a [...,M,K] or [K]; b [...,K,N] or [K].
// Errors: ShapeError when K differs, an operand is 0-dimensional or batch dims do not broadcast; DTypeError,
// DeviceError when the operands differ or are not floating.
Tensor matmul(const Tensor& a, const Tensor& b);

// Applies a linear map: y = x w^T + bias.
// Shapes: x [...,in], w [out,in], bias [out] or undefined -> y [...,out].
// Errors: ShapeError when `in` or `out` do not fit; DTypeError, DeviceError as matmul.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {});

// Returns relu(linear(x, w, bias)). On a GPU it is computed in one pass.
// Errors: as linear.
Tensor linear_relu(const Tensor& x, const Tensor& w, const Tensor& bias = {});

}  // namespace gradus
