// Kernels for f32 on 16-bit floats: inputs are widened before, results are rounded once after.
#pragma once

#include "gradus/tensor/runtime/processor.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

// Returns whether a dtype is bf16 or f16.
constexpr bool is_narrow(DType t) { return t == DType::kBF16 || t == DType::kF16; }
// Returns whether kernels for f32 that widen by themselves compute images of a dtype: f32, and bf16 where the
// processor does not multiply bf16.
inline bool is_computed_in_f32(DType t) {
  return t == DType::kF32 || (t == DType::kBF16 && !has_avx512_bf16());
}

// Returns x's elements as f32. The dims keep their order in memory, and broadcast dims (stride 0) stay so. An
// undefined x stays undefined.
Tensor widened(const Tensor& x);
// Returns an uninitialized f32 tensor for results, in the layout of the dense tensor y.
Tensor wide_like(const Tensor& y);
// Rounds the elements of wide_like(y) into y.
void round_to(const Tensor& y, const Tensor& wide);

// Returns x, widened if it has 16 bits.
inline Tensor in_f32(const Tensor& x) { return x.defined() && is_narrow(x.dtype()) ? widened(x) : x; }
// Calls f(y), or f(wide_like(y)) and rounds that into y if y has 16 bits.
template <class F> void give_in_f32(const Tensor& y, F f) {
  if (!y.defined() || !is_narrow(y.dtype())) return f(y);
  const Tensor wide = wide_like(y);
  f(wide);
  round_to(y, wide);
}

}  // namespace gradus::cpu
