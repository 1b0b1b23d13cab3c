// Raw ops that put elements in another order or leave some out. All dtypes; results are
// row-major unless said.
#pragma once

#include <optional>

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// out, x row-major [..., n, m]: what lies below (`upper`: above) the given diagonal or on it; 0 elsewhere.
extern KernelSlot<void(const Tensor& out, const Tensor& x, int64_t diagonal, bool upper)> triangle_kernel;
// out = 0 counts[0] times, 1 counts[1] times, ...; i64. Throws when that is not out's size.
extern KernelSlot<void(const Tensor& out, const Tensor& counts)> repeat_kernel;

// x with the order along `dims` reversed; in x's layout.
Tensor flip(const Tensor& x, const Dims& dims);
// x with the elements moved by shifts[i] along dims[i], those that leave at the end coming in at the start;
// without dims in the flattened x. In x's layout.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims);
Tensor tril(const Tensor& x, int64_t diagonal);
Tensor triu(const Tensor& x, int64_t diagonal);

// The gradient of view.h's unfold: zeros of `shape` with the windows added in their places.
Tensor unfold_backward(const Tensor& dy, const Shape& shape, int64_t dim, int64_t size, int64_t step);

// How often each index comes, as indices. `total` is their number; without it this waits for the device.
// Errors: ValueError for a negative count.
Tensor repeat_index(const Tensor& counts, std::optional<int64_t> total);

// For every element of a view of x's storage the place of the same element in the flattened x, x.numel()
// where x has none; i64.
// Errors: ShapeError when elements of x overlap.
Tensor places_in(const Tensor& x, const Tensor& view);

}  // namespace gradus::raw
