// Matrix product and linear map, differentiable to any order.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Matrix product: y[...,M,N] = a[...,M,K] b[...,K,N]; batch dims broadcast. A vector is a row as left operand
// and a column as right operand; the result does not have that dim. Transposed views are read without a copy.
// Computes in f64, in f32, or in bf16 with f32 sums. f16 is computed in f32 and rounded once.
// Shapes: a [...,M,K] or [K]; b [...,K,N] or [K].
// Errors: ShapeError when K differs, an operand is 0-dimensional or batch dims do not broadcast; DTypeError,
// DeviceError when the operands differ or are not floating.
Tensor matmul(const Tensor& a, const Tensor& b);

// Applies a linear map: y = x w^T + bias.
// Shapes: x [...,in], w [out,in], bias [out] or undefined -> y [...,out].
// Errors: ShapeError when `in` or `out` do not fit; DTypeError, DeviceError as matmul.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {});

// Returns relu(linear(x, w, bias)), computed by one kernel on a GPU.
// Errors: as linear.
Tensor linear_relu(const Tensor& x, const Tensor& w, const Tensor& bias = {});

}  // namespace gradus
