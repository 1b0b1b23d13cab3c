// Raw view ops: the same elements under another shape. All but `reshape` and `flatten` share storage
// with their input.
#pragma once

#include <optional>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Returns `shape` with its -1 (at most one) replaced so that it holds x's elements.
// Errors: ShapeError.
Shape resolve_shape(const Tensor& x, const Shape& shape, std::string_view op);
// Returns the strides with which x's elements can be seen as `shape`, or none when that takes a copy.
std::optional<Strides> view_strides(const Tensor& x, const Shape& shape);

Tensor view(const Tensor& x, const Shape& shape);
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1);
// The shape that flatten gives.
Shape flatten_shape(const Shape& shape, int64_t start, int64_t end);

Tensor permute(const Tensor& x, const Dims& order);
Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1);
Tensor expand(const Tensor& x, const Shape& shape);
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int64_t dim);
Tensor unsqueeze(const Tensor& x, int64_t dim);
Tensor squeeze(const Tensor& x, const Dims& dims);
Tensor movedim(const Tensor& x, int64_t from, int64_t to);
// The order of x's dims that brings from[i] to place to[i], the others as they were.
Dims moved_order(const Tensor& x, const Dims& from, const Dims& to);
Tensor select(const Tensor& x, int64_t dim, int64_t index);
Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length);
// Every `step`-th element of [start, stop) of `dim`; bounds are clamped as Python clamps them.
Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);

// The first element, the number of elements and the step of a slice of a dimension of `size`.
struct SliceRange {
  int64_t start = 0, length = 0, step = 1;
};
SliceRange clamp_slice(int64_t size, int64_t start, int64_t stop,
                       int64_t step);  // Errors: ValueError for step < 1

// The elements where coordinates in dim1 and dim2 differ by `offset` (dim2's is the larger when positive),
// as the last dim.
Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2);
// Windows of `size` elements along `dim`, `step` apart; the place in the window is the last dim.
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);
// Elements of x's storage.
// Errors: ShapeError when the storage is too small; ValueError for a negative stride.
Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset);

// The order of dimensions that undoes `order`.
Dims inverse_order(const Dims& order);

}  // namespace gradus::raw
