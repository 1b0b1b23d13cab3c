// Raw reductions made of other reductions: var, std, and the logarithm of a sum of exponentials.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

Tensor var(const Tensor& x, const Dims& dims = {}, int64_t correction = 1, bool keepdim = false);
// The square root of var, which may itself leave the range of the dtype.
Tensor std(const Tensor& x, const Dims& dims = {}, int64_t correction = 1, bool keepdim = false);
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);

}  // namespace gradus::raw
