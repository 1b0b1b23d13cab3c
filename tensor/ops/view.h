// Raw view ops: reshape, permute, expand, slice, diagonal, unfold and others, as in PyTorch. Results share storage
// with the input, except that `reshape` and `flatten` may copy. Negative dims count from the end.
// Errors: IndexError for a dim or index out of range; ShapeError; ValueError for a step below 1.
#pragma once

#include <optional>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Returns `shape` with -1 (at most one) replaced by the size that gives x.numel() elements.
// Errors: ShapeError if there is no such size.
Shape resolve_shape(const Tensor& x, const Shape& shape, std::string_view op);
// Returns strides with which x can be viewed as `shape` (of as many elements), nullopt if a copy is needed.
std::optional<Strides> view_strides(const Tensor& x, const Shape& shape);

Tensor view(const Tensor& x, const Shape& shape);
Tensor reshape(const Tensor& x, const Shape& shape);
// Merges dims start to end inclusive; a 0-dim x becomes [1].
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1);
// Returns the shape of flatten's result.
Shape flatten_shape(const Shape& shape, int64_t start, int64_t end);

Tensor permute(const Tensor& x, const Dims& order);
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor expand(const Tensor& x, const Shape& shape);  // stride 0 along broadcast dims; size -1 keeps x's
Tensor squeeze(const Tensor& x);                     // drops dims of size 1; other dims stay
Tensor squeeze(const Tensor& x, int64_t dim);
Tensor unsqueeze(const Tensor& x, int64_t dim);
Tensor squeeze(const Tensor& x, const Dims& dims);
Tensor movedim(const Tensor& x, int64_t from, int64_t to);
// Returns the permutation of x's dims that moves dim from[i] to position to[i] and keeps the order of the others.
Dims moved_order(const Tensor& x, const Dims& from, const Dims& to);
Tensor select(const Tensor& x, int64_t dim, int64_t index);
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
// Returns every `step`-th element of [start, stop) along `dim`. Bounds are clamped as in Python.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);

// The first element, the number of elements and the step of a slice along a dim of length `size`.
struct SliceRange {
  int64_t start = 0, length = 0, step = 1;
};
SliceRange clamp_slice(int64_t size, int64_t start, int64_t stop,
                       int64_t step);  // Errors: ValueError for step < 1

// Returns the elements with coordinates (i, i + offset) in dim1 and dim2, as the last dim.
Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2);
// Returns windows of `size` elements along `dim` with stride `step`. The position within a window is the last dim.
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);
// Returns a view of x's storage with this shape, strides and offset (elements).
// Errors: ShapeError if the storage is too small; ValueError for a negative stride.
Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset);

// Returns the inverse of the permutation `order`.
Dims inverse_order(const Dims& order);

}  // namespace gradus::raw
