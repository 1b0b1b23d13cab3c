// Raw cat and stack, as in PyTorch. The differentiable forms are in gradus/autograd/ops/concat.h.
#pragma once

#include <vector>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// The kernel of cat for GPUs; CPUs copy each operand. `out` is dense, with at least one element; xs may have other
// dtypes, any strides, and no elements.
extern KernelSlot<void(const Tensor& out, const std::vector<Tensor>& xs, int64_t dim)> cat_kernel;

// Return a new tensor. cat joins tensors of at least one dim whose shapes are equal except in `dim`; stack
// joins tensors of equal shape along a new dim. A negative `dim` counts from the end. Mixed dtypes are
// promoted. The result of cat is channels-last if all of xs are, else row-major.
// Errors: ValueError for an empty list; ShapeError for other shapes; IndexError for `dim`; DeviceError.
Tensor cat(const std::vector<Tensor>& xs, int64_t dim);
Tensor stack(const std::vector<Tensor>& xs, int64_t dim);

}  // namespace gradus::raw
