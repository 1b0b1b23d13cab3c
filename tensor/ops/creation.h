// Factory functions: zeros, ones, full, arange, linspace, logspace, eye, tril_indices, as in PyTorch. Results are
// row-major, on options.device.
#pragma once

#include <optional>
#include <type_traits>

#include "gradus/tensor/tensor.h"

namespace gradus {

namespace raw {
// Kernels. arange: out[i] = start + i * step. linspace: out = evenly spaced values from start to end inclusive.
extern KernelSlot<void(const Tensor& out, double start, double step)> arange_kernel;
extern KernelSlot<void(const Tensor& out, double start, double end)> linspace_kernel;
}  // namespace raw

// Errors: ShapeError for a negative size; ValueError for a value that the dtype cannot represent.
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
Tensor full(const Shape& shape, Number value, TensorOptions options = {});

// Return a tensor with the shape, device and layout of x, and its dtype unless one is given.
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype = {});
Tensor ones_like(const Tensor& x, std::optional<DType> dtype = {});
Tensor full_like(const Tensor& x, Number value, std::optional<DType> dtype = {});

// Returns start, start + step, ... up to `end` exclusive. For a negative step the values descend.
// Errors: ValueError for a step of 0 or of the wrong sign, for numbers that are not finite, and for values
// that the dtype cannot represent; DTypeError for bool.
Tensor arange_from(double start, double end, double step, TensorOptions options);

template <class T>
concept Arithmetic = std::is_arithmetic_v<T>;

namespace internal {
template <class... N> DType dtype_of_numbers() {
  return (std::is_integral_v<N> && ...) ? DType::kI64 : get_default_dtype();
}
}  // namespace internal

// arange(end), arange(start, end) and arange(start, end, step), as in PyTorch. The default dtype is i64 if all
// numbers are integers, else get_default_dtype().
template <Arithmetic A>
Tensor arange(A end, TensorOptions options = {.dtype = internal::dtype_of_numbers<A>()}) {
  return arange_from(0, double(end), 1, options);
}
template <Arithmetic A, Arithmetic B>
Tensor arange(A start, B end, TensorOptions options = {.dtype = internal::dtype_of_numbers<A, B>()}) {
  return arange_from(double(start), double(end), 1, options);
}
template <Arithmetic A, Arithmetic B, Arithmetic C>
Tensor arange(A start, B end, C step,
              TensorOptions options = {.dtype = internal::dtype_of_numbers<A, B, C>()}) {
  return arange_from(double(start), double(end), double(step), options);
}

// Returns `steps` evenly spaced values from start to end inclusive; one step gives `start`.
// Errors: ValueError for a negative number of steps, and for bounds that the dtype cannot represent.
Tensor linspace(double start, double end, int64_t steps, TensorOptions options = {});

// Returns `base` to the power of each value of linspace(start, end, steps).
// Errors: ValueError for a negative number of steps.
Tensor logspace(double start, double end, int64_t steps, double base = 10, TensorOptions options = {});

// Return the row and column indices of the elements that tril, or triu, keeps of a [rows, cols] matrix, in
// row-major order: those with column - row <= offset, or >= offset.
// Shapes: -> [2,count]: row indices, column indices.
// Errors: ValueError for a negative size; DTypeError unless the dtype is an integer.
Tensor tril_indices(int64_t rows, int64_t cols, int64_t offset = 0,
                    TensorOptions options = {.dtype = DType::kI64});
Tensor triu_indices(int64_t rows, int64_t cols, int64_t offset = 0,
                    TensorOptions options = {.dtype = DType::kI64});

// Returns a matrix [n,m] with ones on the diagonal column - row = offset and zeros elsewhere; m = -1: m = n.
// Errors: ValueError for another negative size.
Tensor eye(int64_t n, int64_t m = -1, TensorOptions options = {});
Tensor eye(int64_t n, int64_t m, int64_t offset, TensorOptions options = {});

}  // namespace gradus
