// Raw ops that reorder elements or leave some out. They take all dtypes. Results are row-major
// unless said otherwise.
#pragma once

#include <optional>

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// out, x row-major [..., n, m]. out keeps what lies on the given diagonal or below it (`upper`: on it or
// above) and is 0 elsewhere.
extern KernelSlot<void(const Tensor& out, const Tensor& x, int64_t diagonal, bool upper)> triangle_kernel;
// out (i64) = counts[0] times 0, then counts[1] times 1, ... Throws when out has another size.
extern KernelSlot<void(const Tensor& out, const Tensor& counts)> repeat_kernel;

// Returns x with the order along `dims` reversed, in x's layout.
Tensor flip(const Tensor& x, const Dims& dims);
// Returns x with its elements moved by shifts[i] along dims[i], in x's layout. Elements that leave at the end
// enter at the start. Without dims the flattened x is rolled.
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims);
Tensor tril(const Tensor& x, int64_t diagonal);
Tensor triu(const Tensor& x, int64_t diagonal);

// The gradient of unfold (gradus/tensor/ops/view.h): returns zeros of `shape` with the windows dy added
// in their places.
Tensor unfold_backward(const Tensor& dy, const Shape& shape, int64_t dim, int64_t size, int64_t step);

// Returns each index as often as `counts` says. `total` is the length of the result. Without it the function
// waits for the device.
// Errors: ValueError for a negative count.
Tensor repeat_index(const Tensor& counts, std::optional<int64_t> total);

// For every element of `view`, a view of x's storage, returns the place (i64) of the same element in the
// flattened x, or x.numel() where x does not have it.
// Errors: ShapeError when elements of x overlap.
Tensor places_in(const Tensor& x, const Tensor& view);

}  // namespace gradus::raw
