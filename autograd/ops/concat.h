// Concatenation, stacking, splitting, and one-hot encoding, as in PyTorch. Negative dims count from the end;
// IndexError for a dim that x does not have, StateError for an undefined tensor, ValueError for more than
// 2^24 pieces. All but one_hot are differentiable.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Concatenates xs along `dim`. Dtypes are promoted. The result is channels-last when all of xs are.
// Shapes: [a,n1,b], [a,n2,b], ... -> [a,n1+n2+...,b] for dim 1.
// Errors: ValueError for none; ShapeError when xs differ outside of `dim` or have no dims; DeviceError.
// Grad: to each x, the corresponding slice of dy.
Tensor cat(const std::vector<Tensor>& xs, int64_t dim = 0);

// Concatenates xs along a new dim. Dtypes are promoted.
// Shapes: k times [a,b] -> [a,k,b] for dim 1.
// Errors: ValueError for none; ShapeError when shapes differ; DeviceError.
Tensor stack(const std::vector<Tensor>& xs, int64_t dim = 0);

// Concatenate as the functions of NumPy: hstack along dim 1 (vectors along dim 0); vstack along dim 0, a
// vector counting as [1,n]; dstack along dim 2, a matrix counting as [n,m,1]; column_stack along dim 1, a
// vector counting as [n,1].
// Errors: as cat.
Tensor hstack(const std::vector<Tensor>& xs);
Tensor vstack(const std::vector<Tensor>& xs);
Tensor dstack(const std::vector<Tensor>& xs);
Tensor column_stack(const std::vector<Tensor>& xs);

// Return x with dims of size 1 added so that it has at least 1, 2 or 3 dims. Dims are added in front; the
// third dim of atleast_3d is added at the end.
Tensor atleast_1d(const Tensor& x);
Tensor atleast_2d(const Tensor& x);
Tensor atleast_3d(const Tensor& x);

// Returns views of xs, expanded to their common broadcast shape.
// Errors: ShapeError when they do not broadcast.
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& xs);

// Return consecutive pieces of x along `dim`, as views: pieces of `size` elements (the last may be smaller),
// or pieces of the listed sizes.
// Errors: ValueError for a `size` below 1; ShapeError when the listed sizes do not sum to x.size(dim).
// Grad: the gradients of the pieces, concatenated.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
// Returns at most `chunks` pieces of equal size, as views; the last one may be smaller. A dim of size 0 gives
// `chunks` empty pieces.
// Errors: ValueError for fewer than 1 chunk.
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
// Return exactly `sections` pieces, or the pieces between the given indices, as views. If `sections` does not
// divide the size, the first pieces are larger by one. Indices may be negative (counted from the end) or out
// of range.
// Errors: ValueError for fewer than 1 section; ShapeError for x without dims.
std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim = 0);
std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim = 0);
// tensor_split along dim 1 (dim 0 of a vector), dim 0, and dim 2.
// Errors: ShapeError for too few dims; ValueError when the sections are not of equal size.
std::vector<Tensor> hsplit(const Tensor& x, int64_t sections);
std::vector<Tensor> hsplit(const Tensor& x, const std::vector<int64_t>& indices);
std::vector<Tensor> vsplit(const Tensor& x, int64_t sections);
std::vector<Tensor> vsplit(const Tensor& x, const std::vector<int64_t>& indices);
std::vector<Tensor> dsplit(const Tensor& x, int64_t sections);
std::vector<Tensor> dsplit(const Tensor& x, const std::vector<int64_t>& indices);
// Returns the slices of x along `dim`, without that dim, as views.
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);

// One-hot encoding: y[..., c] = 1 if c == index[...], else 0. For `classes` = -1, the number of classes is
// the largest index plus 1, and the call waits for the device.
// Shapes: index[...] -> [...,classes].
// Errors: ValueError for fewer than 1 class, or when there is no index to count the classes from; IndexError
// for an index outside [0, classes); DTypeError unless index is i64 or i32.
Tensor one_hot(const Tensor& index, int64_t classes = -1, DType dtype = DType::kI64);

}  // namespace gradus
