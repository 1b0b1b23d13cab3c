// 16-bit floats through a kernel for f32: inputs widened before, results rounded once after.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

// Whether a dtype is bf16 or f16.
constexpr bool is_narrow(DType t) { return t == DType::kBF16 || t == DType::kF16; }

// Returns x's elements as f32, dims in the order in which x steps through memory, dims that repeat one
// element (stride 0) still doing so. Undefined stays undefined.
Tensor widened(const Tensor& x);
// Returns room for f32 results in the layout of the dense tensor y.
Tensor wide_like(const Tensor& y);
// Rounds the elements of wide_like(y) into y.
void round_to(const Tensor& y, const Tensor& wide);

}  // namespace gradus::cpu
