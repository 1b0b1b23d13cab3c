// Views: the same elements under another shape. Results share storage with x (but for `reshape` and
// `flatten`, which copy when they must); writing into one is seen by the other.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns x with another shape; one size may be -1. Elements keep their row-major order. Copies only when x's
// layout leaves no other way. Errors: ShapeError when the numbers of elements differ. Grad: dy with x's
// shape.
Tensor reshape(const Tensor& x, const Shape& shape);

// The same, but never copies.
// Errors: also ShapeError "call reshape()" when it would have to.
Tensor view(const Tensor& x, const Shape& shape);

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
// Returns the transposed matrix; x itself with fewer than two dims.
// Errors: ShapeError for more than two dims.
Tensor t(const Tensor& x);
// Returns x with one dim moved to another place, the others in order.
Tensor movedim(const Tensor& x, int64_t from, int64_t to);

// Returns x seen as the larger `shape` by repeating its dims of size 1, and new ones in front, without
// copying; -1 keeps a size. Errors: ShapeError when x does not broadcast to `shape`. Grad: dy summed to x's
// shape.
Tensor expand(const Tensor& x, const Shape& shape);
Tensor broadcast_to(const Tensor& x, const Shape& shape);

// Returns x summed to `shape`, which broadcasts to x's: the transpose of expand.
// Errors: ShapeError when it does not.
// Grad: dy expanded to x's shape.
Tensor sum_to(const Tensor& x, const Shape& shape);

// Returns x without its dims of size 1, or without dim `dim` if its size is 1.
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int64_t dim);
// Returns x with a dim of size 1 inserted before `dim`; -1 appends it.
Tensor unsqueeze(const Tensor& x, int64_t dim);

// Returns the part [start, start + length) of a dim.
// Errors: IndexError when it reaches over the ends.
// Grad: dy amid zeros.
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);

// Returns every `step`-th element of [start, stop) of a dim; negative bounds count from the back, bounds
// beyond the ends are clamped. Errors: ValueError for a step below 1. Grad: dy amid zeros.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);

// Returns zeros of `shape` with y as the slice that starts at `start`: the transpose of slice.
// Grad: the same slice of dy.
Tensor slice_backward(const Tensor& y, const Shape& shape, int64_t dim, int64_t start, int64_t step = 1);

// Returns the slice at `index` of a dim, without that dim; negative counts from the back.
// Errors: IndexError when out of range.
// Grad: dy amid zeros.
Tensor select(const Tensor& x, int64_t dim, int64_t index);

}  // namespace gradus
