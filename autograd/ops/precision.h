// The dtypes for intermediate and final results of ops that are composed of other ops (x / (1 + abs(x)), for
// example). A fused kernel rounds its result once; a composed op in f16 or bf16 would round after each op.
#pragma once

#include "gradus/autograd/ops/copy.h"

namespace gradus::autograd {

inline bool has_16_bits(const Tensor& x) { return is_floating(x.dtype()) && size_of(x.dtype()) == 2; }

// Returns x converted to f32 if its dtype is f16 or bf16, else x itself, which may be undefined. Differentiable, as
// `to`.
inline Tensor at_least_f32(const Tensor& x) { return x.defined() && has_16_bits(x) ? to(x, DType::kF32) : x; }

// Returns the dtype in which ops on floating-point tensors accumulate: f64 for f64, else f32.
inline DType at_least_f32(DType t) { return t == DType::kF64 ? t : DType::kF32; }

// Returns the dtype of the result of an op with fractional results (erf, softsign, ...): x's dtype if it is
// floating, else get_default_dtype().
inline DType floating_dtype(const Tensor& x) {
  return is_floating(x.dtype()) ? x.dtype() : get_default_dtype();
}

}  // namespace gradus::autograd
