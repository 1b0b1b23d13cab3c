// Joining tensors and taking them apart.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns xs one after another along `dim`. Dtypes are promoted. The result is channels-last
// when all of xs are.
// Shapes: [a,n1,b], [a,n2,b], ... -> [a,n1+n2+...,b].
// Errors: ValueError for none; ShapeError when xs differ outside of `dim`; DeviceError.
// Grad: to each, its part of dy.
Tensor cat(const std::vector<Tensor>& xs, int64_t dim = 0);

// Returns xs one after another along a new dim.
// Shapes: k times [a,b] -> [a,k,b] for dim 1.
// Errors: ValueError for none; ShapeError when shapes differ.
Tensor stack(const std::vector<Tensor>& xs, int64_t dim = 0);

// Return xs one after another: hstack along dim 1 (vectors along their only dim); vstack as rows, each vector
// one row; dstack along dim 2, each matrix one layer; column_stack as columns, each vector one column.
// Errors: as cat.
Tensor hstack(const std::vector<Tensor>& xs);
Tensor vstack(const std::vector<Tensor>& xs);
Tensor dstack(const std::vector<Tensor>& xs);
Tensor column_stack(const std::vector<Tensor>& xs);

// Return x with dims of size 1 added until it has at least 1, 2 or 3 dims. They are added in front, but the
// third dim of atleast_3d is added at the end.
Tensor atleast_1d(const Tensor& x);
Tensor atleast_2d(const Tensor& x);
Tensor atleast_3d(const Tensor& x);

// Returns xs expanded to the shape that they broadcast to, as views.
// Errors: ShapeError when they do not broadcast.
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& xs);

// Return consecutive pieces of x along `dim`, as views: of `size` elements (the last one may be smaller), or
// of the given sizes.
// Errors: ValueError for a size below 1 (0 in a list is fine); ShapeError when sizes do not add up.
// Grad: the pieces' gradients joined.
std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim = 0);
// Returns at most `chunks` pieces of equal size; the last one may be smaller. A dim of size 0 gives `chunks`
// empty pieces.
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim = 0);
// Return exactly `sections` pieces, or the pieces between the given indices, as views. Where the size does
// not divide, the first pieces are larger by one. Indices may be negative or lie beyond the ends.
// Errors: ValueError for fewer than 1 section.
std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim = 0);
std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim = 0);
// The same along dim 1 (of a vector: its only dim), 0 and 2.
// Errors: ShapeError for too few dims; ValueError when the sections are not of equal size.
std::vector<Tensor> hsplit(const Tensor& x, int64_t sections);
std::vector<Tensor> hsplit(const Tensor& x, const std::vector<int64_t>& indices);
std::vector<Tensor> vsplit(const Tensor& x, int64_t sections);
std::vector<Tensor> vsplit(const Tensor& x, const std::vector<int64_t>& indices);
std::vector<Tensor> dsplit(const Tensor& x, int64_t sections);
std::vector<Tensor> dsplit(const Tensor& x, const std::vector<int64_t>& indices);
// Returns the slices of x along `dim`, without that dim, as views.
std::vector<Tensor> unbind(const Tensor& x, int64_t dim = 0);

// Returns 1 where the last coordinate is the index, 0 elsewhere. Without `classes`, their number is the
// largest index plus 1; the call then waits for the device.
// Shapes: index[...] -> [...,classes].
// Errors: ValueError for fewer than 1 class, or when there is no index to count the classes from; IndexError
// for an index outside [0, classes).
Tensor one_hot(const Tensor& index, int64_t classes = -1, DType dtype = DType::kI64);

}  // namespace gradus
