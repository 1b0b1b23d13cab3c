// The precision that an op of several steps computes in.
#pragma once

#include "gradus/autograd/ops/copy.h"

namespace gradus::autograd {

// Returns x, in f32 if it has 16 bits. A formula of several steps is computed from this: its intermediate
// results would lose their digits, or leave the range, in 16 bits.
inline Tensor at_least_f32(const Tensor& x) {
  return is_floating(x.dtype()) && size_of(x.dtype()) == 2 ? to(x, DType::kF32) : x;
}

// Returns the dtype of an op's fractional results.
inline DType floating_dtype(const Tensor& x) {
  return is_floating(x.dtype()) ? x.dtype() : get_default_dtype();
}

}  // namespace gradus::autograd
