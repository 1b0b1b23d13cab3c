// Raw var, std and logsumexp. An empty `dims` means all dims; `correction` is subtracted from the number of
// elements.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

Tensor var(const Tensor& x, const Dims& dims = {}, int64_t correction = 1, bool keepdim = false);
// Returns the square root of the variance, without overflow of the variance in the dtype.
Tensor std(const Tensor& x, const Dims& dims = {}, int64_t correction = 1, bool keepdim = false);
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);

}  // namespace gradus::raw
