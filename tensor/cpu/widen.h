// Lets kernels that compute in f32 serve bf16 and f16: inputs are converted to f32 before the kernel, and results
// are rounded once after it.
#pragma once

#include "gradus/tensor/runtime/processor.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

// Returns whether a dtype is bf16 or f16.
constexpr bool is_16_bit_float(DType t) { return t == DType::kBF16 || t == DType::kF16; }
// Returns whether images of dtype t are computed by f32 kernels that convert bf16 as they load and store: true for
// f32, and for bf16 on processors without AVX512_BF16 instructions.
inline bool is_computed_in_f32(DType t) {
  return t == DType::kF32 || (t == DType::kBF16 && !has_avx512_bf16());
}

// Returns x converted to f32. The order of dims in memory is kept, and broadcast dims keep stride 0. An undefined
// x gives an undefined result.
Tensor to_f32(const Tensor& x);
// Returns an uninitialized f32 tensor with the shape and strides of the dense tensor y.
Tensor empty_f32_like(const Tensor& y);
// y = wide, rounded to y's dtype. `wide` has the shape of y, as empty_f32_like(y) returns it.
void round_into(const Tensor& y, const Tensor& wide);

// Returns x, converted to f32 if its dtype is bf16 or f16.
inline Tensor as_f32(const Tensor& x) { return x.defined() && is_16_bit_float(x.dtype()) ? to_f32(x) : x; }
// Calls f(y), which must write all elements. If y is bf16 or f16, calls f on an uninitialized f32 tensor of y's
// shape and strides instead, and rounds the result into y. An undefined y is passed to f.
template <class F> void compute_in_f32(const Tensor& y, F f) {
  if (!y.defined() || !is_16_bit_float(y.dtype())) return f(y);
  const Tensor wide = empty_f32_like(y);
  f(wide);
  round_into(y, wide);
}

}  // namespace gradus::cpu
