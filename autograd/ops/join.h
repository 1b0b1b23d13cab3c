// Joining tensors and taking them apart.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns xs one after another along `dim`. Dtypes are promoted; channels-last when all of xs are.
// Shapes: [a,n1,b], [a,n2,b], ... -> [a,n1+n2+...,b].
// Errors: ValueError for none; ShapeError when xs differ outside of `dim`; DeviceError.
// Grad: each its part of dy.
Tensor cat(const std::vector<Tensor>& xs, int64_t dim = 0);

// Returns xs one after another along a new dim.
// Shapes: k times [a,b] -> [a,k,b] for dim 1.
// Errors: ValueError for none; ShapeError when shapes differ.
Tensor stack(const std::vector<Tensor>& xs, int64_t dim = 0);

// Returns consecutive pieces of x along `dim`, as views: of `size` elements (the last one may be smaller), or
// of the given sizes. Errors: ValueError for a size below 1 (0 in a list is fine); ShapeError when sizes do
// not add up. Grad: the pieces' gradients joined.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
// Returns at most `chunks` pieces of equal size, but for the last one.
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
// Returns the slices of x along `dim`, without that dim, as views.
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);

// Returns 1 where the last coordinate is the index, 0 elsewhere.
// Shapes: index[...] -> [...,classes].
// Errors: ValueError for fewer than 1 class; IndexError for an index outside [0, classes).
Tensor one_hot(const Tensor& index, int64_t classes, DType dtype = DType::kI64);

}  // namespace gradus
