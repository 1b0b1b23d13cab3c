// Raw ops that reorder, select or repeat elements: flip, roll, tril, triu, repeat_interleave. For all dtypes.
// Results are row-major unless stated otherwise.
#pragma once

#include <optional>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// out, x row-major [..., n, m]: out = x on and below the given diagonal (`upper`: on and above), else 0.
extern KernelSlot<void(const Tensor& out, const Tensor& x, int64_t diagonal, bool upper)> triangle_kernel;
// out (i64) = the index 0 counts[0] times, then 1 counts[1] times, ..., for row-major i64 counts. Throws
// ValueError if out has another size, or for a negative count.
extern KernelSlot<void(const Tensor& out, const Tensor& counts)> repeat_kernel;

// Returns x with the order of elements along `dims` reversed, in x's layout.
// Errors: IndexError for a dim out of range; ShapeError for a repeated one.
Tensor flip(const Tensor& x, const Dims& dims);
// Returns x with its elements shifted circularly by shifts[i] (of any sign) along dims[i], in x's layout.
// Empty dims: shifts the flattened x by shifts[0]. Errors: IndexError, ShapeError.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims);
// Return the lower, or upper, triangles of the matrices x [..., n, m], with zeros elsewhere. Diagonal k has
// the elements with column - row = k. Errors: ShapeError for less than 2 dims.
Tensor tril(const Tensor& x, int64_t diagonal);
Tensor triu(const Tensor& x, int64_t diagonal);

// The gradient of unfold (view.h) of an x of `shape`: returns zeros to which the windows dy are added at
// their positions. Errors: ShapeError unless dy has the shape of unfold's result.
Tensor unfold_backward(const Tensor& dy, const Shape& shape, int64_t dim, int64_t size, int64_t step);

// Returns i64[total]: index i counts[i] times, for i = 0, 1, ... `total` is the sum of the integers `counts`;
// without `total` the function blocks until the device has computed the sum.
// Errors: ValueError for a negative count or another sum; DeviceError for meta counts without `total`.
Tensor repeat_index(const Tensor& counts, std::optional<int64_t> total);

// For each element of `view`, a view of x's storage, returns the index (i64) of this element in the flattened x,
// or x.numel() if it is not an element of x. Computed on the host from shapes and strides (>= 0).
// Errors: ShapeError if elements of x overlap.
Tensor indices_in(const Tensor& x, const Tensor& view);

}  // namespace gradus::raw
