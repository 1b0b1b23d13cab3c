// Raw var, std and logsumexp of a floating x over `dims`, as in PyTorch. An empty `dims` means all dims;
// `keepdim` keeps reduced dims with size 1. The variance is sum (x - mean)^2 / max(0, n - correction), NaN
// for 0 / 0; logsumexp over no elements is -inf.
// Errors: IndexError, ShapeError for `dims`; DTypeError unless floating.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

Tensor var(const Tensor& x, const Dims& dims = {}, int64_t correction = 1, bool keepdim = false);
// Returns the square root of the variance, without overflow of the variance in the dtype.
Tensor std(const Tensor& x, const Dims& dims = {}, int64_t correction = 1, bool keepdim = false);
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);

}  // namespace gradus::raw
