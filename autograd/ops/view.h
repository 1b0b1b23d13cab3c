// Views. Results share storage with x: a write into one changes the other. Only reshape, reshape_as, flatten
// and unflatten copy, if x's strides do not allow a view; sum_to and the _backward functions return new
// tensors (sum_to: x itself if it has that shape). A negative dim counts from the end.
// Errors of all: StateError for an undefined tensor; IndexError for a dim that x does not have.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns x with another shape and the same row-major order of elements; one size may be -1 and is inferred.
// Copies only if x's strides do not allow a view of that shape.
// Errors: ShapeError when the numbers of elements differ.
// Grad: dy with x's shape.
Tensor reshape(const Tensor& x, const Shape& shape);

// The same, but never copies.
// Errors: also ShapeError "call reshape()" when it would have to copy.
Tensor view(const Tensor& x, const Shape& shape);

// The same with the shape of `other`.
Tensor reshape_as(const Tensor& x, const Tensor& other);
Tensor view_as(const Tensor& x, const Tensor& other);

// Returns x with dim `dim` split into dims of the given sizes; one may be -1 and is inferred.
// Shapes: [N,12] with dim 1 and sizes {3,-1} -> [N,3,4].
// Errors: ShapeError unless the sizes' product is the dim's.
Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes);

// Returns x with dims `start` to `end` (inclusive) merged into one.
// Shapes: [N,C,H,W] with start 1 -> [N,CHW].
// Grad: dy with x's shape.
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1);

// Returns x with its dims in the given order: y.size(i) is x.size(order[i]).
// Errors: ShapeError unless `order` names every dim once.
// Grad: dy permuted back.
Tensor permute(const Tensor& x, const Dims& order);

// Returns x with two dims swapped.
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor swapaxes(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1);
// Returns the transposed matrix; x itself with fewer than two dims.
// Errors: ShapeError for more than two dims.
Tensor t(const Tensor& x);
// Return x with one dim, or several, moved to other positions. The other dims keep their order.
// Errors: ShapeError when a dim is named twice, or the lists differ in length.
Tensor movedim(const Tensor& x, int64_t from, int64_t to);
Tensor movedim(const Tensor& x, const Dims& from, const Dims& to);
Tensor moveaxis(const Tensor& x, int64_t from, int64_t to);
Tensor moveaxis(const Tensor& x, const Dims& from, const Dims& to);

// Return x broadcast to `shape` as a view with stride 0 in repeated dims: dims of size 1 are repeated, and
// new dims are added in front. A size of -1 keeps x's size.
// Errors: ShapeError when x does not broadcast to `shape`.
// Grad: dy summed to x's shape.
Tensor expand(const Tensor& x, const Shape& shape);
Tensor broadcast_to(const Tensor& x, const Shape& shape);
Tensor expand_as(const Tensor& x, const Tensor& other);

// Returns x summed to `shape`, which must broadcast to x's shape: the transpose of expand.
// Errors: ShapeError when `shape` does not broadcast to x's.
// Grad: dy expanded to x's shape.
Tensor sum_to(const Tensor& x, const Shape& shape);

// Return x without its dims of size 1, or without those of the given dims that have size 1.
// Errors: ShapeError for a dim that is named twice.
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int64_t dim);
Tensor squeeze(const Tensor& x, const Dims& dims);
// Returns x with a dim of size 1 inserted before `dim`; -1 appends it.
Tensor unsqueeze(const Tensor& x, int64_t dim);

// Returns the range [start, start + length) of a dim; a negative start counts from the end.
// Errors: IndexError when the range exceeds the dim.
// Grad: dy at that range, zeros elsewhere.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);

// Returns every `step`-th element of [start, stop) of a dim. Negative bounds count from the end; bounds
// beyond the ends are clamped.
// Errors: ValueError for a step below 1.
// Grad: dy at the slice, zeros elsewhere.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);

// Returns zeros of `shape` with y as the slice that starts at `start`: the transpose of slice.
// Grad: the same slice of dy.
Tensor slice_backward(const Tensor& y, const Shape& shape, int64_t dim, int64_t start, int64_t step = 1);

// Returns the slice at `index` of a dim, without that dim. A negative index counts from the end.
// Errors: IndexError when out of range.
// Grad: dy at that index, zeros elsewhere.
Tensor select(const Tensor& x, int64_t dim, int64_t index);

// A diagonal of two dims: the elements whose index in dim2 is their index in dim1 plus `offset`.
struct DiagonalOptions {
  int64_t offset = 0, dim1 = 0, dim2 = 1;
};
// Returns a diagonal of x as the last dim, in place of dim1 and dim2.
// Shapes: x[n,m,a] -> [a,min(n,m)].
// Errors: ShapeError for fewer than 2 dims, or dim1 = dim2.
// Grad: dy on the diagonal, zeros elsewhere.
Tensor diagonal(const Tensor& x, DiagonalOptions options = {});
// Returns zeros of `shape` with dy as that diagonal: the transpose of diagonal.
// Errors: ShapeError when the diagonal has another shape than dy.
Tensor diagonal_backward(const Tensor& dy, const Shape& shape, DiagonalOptions options = {});

// torch.Tensor.unfold: returns the windows of `size` elements along `dim`, `step` apart, as a view. The
// position in the window is a new last dim.
// Shapes: x[a,n,b] with dim 1 -> [a,(n-size)/step+1,b,size].
// Errors: ShapeError when `size` exceeds the dim; ValueError for a step below 1.
// Grad: dy added at the windows' positions.
Tensor unfold_dim(const Tensor& x, int64_t dim, int64_t size, int64_t step);
// Returns zeros of `shape` with the windows of dy added at their positions: the transpose of unfold_dim.
// Errors: ShapeError unless dy has the shape that unfold_dim returns for `shape`.
Tensor unfold_dim_backward(const Tensor& dy, const Shape& shape, int64_t dim, int64_t size, int64_t step);

}  // namespace gradus
