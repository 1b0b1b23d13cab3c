// Dtypes in which ops that are composed of several steps compute.
#pragma once

#include "gradus/autograd/ops/copy.h"

namespace gradus::autograd {

// Returns x, cast to f32 if it has 16 bits, so that intermediate results of a formula neither overflow nor lose
// precision.
inline Tensor at_least_f32(const Tensor& x) {
  return is_floating(x.dtype()) && size_of(x.dtype()) == 2 ? to(x, DType::kF32) : x;
}

// Returns the dtype of an op's fractional results: x's dtype, or the default dtype if x has integers or bools.
inline DType floating_dtype(const Tensor& x) {
  return is_floating(x.dtype()) ? x.dtype() : get_default_dtype();
}

}  // namespace gradus::autograd
