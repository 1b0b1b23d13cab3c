// Raw softmax, log_softmax and their gradients. Results are channels-last if x (or y) is, else row-major.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Kernels take dense f32 or f64 tensors, on a GPU also bf16 and f16, of one layout, which may be empty, seen
// in memory order as [outer, n, inner], and compute the softmax, or with `log` its logarithm, over dim 1.
// clang-format off
extern KernelSlot<void(const Tensor& y, const Tensor& x, int64_t n, int64_t inner, bool log)> softmax_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& y, int64_t n, int64_t inner, bool
    log)> softmax_backward_kernel;
// clang-format on

// Errors: IndexError for `dim`; DTypeError unless floating; ShapeError if dy does not match y; DeviceError.
Tensor softmax(const Tensor& x, int64_t dim);
Tensor log_softmax(const Tensor& x, int64_t dim);
// Return dx, given the forward's result y:
//   softmax:      dx = y (dy - sum(dy y))
//   log_softmax:  dx = dy - exp(y) sum(dy)
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim);
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim);

}  // namespace gradus::raw
