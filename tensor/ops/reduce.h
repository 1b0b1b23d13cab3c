// Raw reductions and scans, as in PyTorch: sum, mean, norm, argmax, cumsum and others. An empty `dims` means
// all dims; `keepdim` keeps reduced dims with size 1. Results are row-major and deterministic. Sums and
// products of integers and bool are i64, any and all give bool, other results have x's dtype.
// Errors: IndexError for a dim out of range; ShapeError for a repeated one.
#pragma once

#include <utility>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Kernels reduce the dims in which `out` has size 1; `out` has as many dims as x. x may be strided. Supported
// dtypes: sum all; prod f64, f32, i64; amax and amin all but f16 and bf16; any and all bool; norm f64, f32.
// clang-format off
extern KernelSlot<void(const Tensor& out, const Tensor& x, double scale)> sum_kernel;
// out = scale * sum (x - mean)^2, or the square root of that. f64 and f32.
extern KernelSlot<void(const Tensor& out, const Tensor& x, double scale, bool root)> var_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> prod_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> amax_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> amin_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> any_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> all_kernel;
// out = (scale * sum |x|^p)^(root ? 1/p : 1). p = 0 counts nonzeros; p = +-inf takes the largest
// or smallest |x|.
extern KernelSlot<void(const Tensor& out, const Tensor& x, double p, double scale, bool root)> norm_kernel;
// The extrema of a row-major x, seen as [outer, n, inner], along dim 1, and the index of their first occurrence;
// values and indices are [outer, inner]. NaN counts as the extremum.
extern KernelSlot<void(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t inner, bool
    largest)> extremum_kernel;
// Scans along the middle dim of row-major tensors seen as [outer, n, inner] (as_slices). On a GPU the partial
// products of cumprod do not overflow or underflow before they are rounded to out's dtype; on the CPU they do.
extern KernelSlot<void(const Tensor& out, const Tensor& x, bool reverse)> cumsum_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x, bool reverse)> cumprod_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> logcumsumexp_kernel;
extern KernelSlot<void(const Tensor& values, const Tensor& indices, const Tensor& x, bool largest)>
    running_extremes_kernel;
// y[i] = b[i] + a[i] * y[i-1], in reverse b[i] + a[i] * y[i+1], where y is 0 out of range. f64 and f32.
extern KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, bool reverse)>
    linear_recurrence_kernel;
// clang-format on

// Returns a flag for each dim: whether it is reduced. An empty `dims` reduces all.
// Errors: IndexError, ShapeError for a repeated dim.
std::array<bool, kMaxDims> reduced_dims(const Tensor& x, const Dims& dims, std::string_view op);
// Returns the shape of the result.
// Errors: as reduced_dims.
Shape reduced_shape(const Tensor& x, const Dims& dims, bool keepdim, std::string_view op);
// Returns the number of elements of x per element of the result: the product of the reduced sizes.
int64_t reduced_numel(const Tensor& x, const Dims& dims, std::string_view op);
// Checks that the reduced dims are not empty, for reductions without a neutral element.
// Errors: ShapeError.
void check_not_empty(const Tensor& x, const Dims& dims, std::string_view op);
// Checks the dims and that x is floating point.
// Errors: as reduced_dims; DTypeError unless floating point.
void check_reducible_float(const Tensor& x, const Dims& dims, std::string_view op);
// An uninitialized row-major result: `with_keepdim` has the reduced dims with size 1, for the kernel;
// `result` is the same memory in the final shape.
struct ReductionResult {
  Tensor with_keepdim, result;
};
ReductionResult make_reduction(const Tensor& x, const Dims& dims, bool keepdim, DType dtype,
                               std::string_view op);

// mean, norm, logcumsumexp, linear_recurrence: DTypeError unless floating. amax, amin, max, min, argmax,
// argmin, norm of infinite p: ShapeError over no elements. `reverse`: from the last element to the first.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor norm(const Tensor& x, const Dims& dims = {}, double p = 2, bool keepdim = false);
Tensor cumsum(const Tensor& x, int64_t dim, bool reverse = false);
Tensor cumprod(const Tensor& x, int64_t dim, bool reverse = false);
Tensor logcumsumexp(const Tensor& x, int64_t dim);
// Return the running maximum, or minimum, along `dim` and its i64 indices (the last of equal elements).
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim);
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim);
// Returns y of linear_recurrence_kernel along `dim`. Errors: ShapeError, DeviceError unless a is like b.
Tensor linear_recurrence(const Tensor& a, const Tensor& b, int64_t dim, bool reverse = false);

// Returns a view of a row-major x as [outer, n, inner] with n = x's size along `dim`.
// Errors: IndexError.
Tensor as_slices(const Tensor& x, int64_t dim, std::string_view op);

// Return the extrema along `dim` and the i64 indices of their first occurrences.
std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false);
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false);
// Return an index into the flattened x.
Tensor argmax(const Tensor& x);
Tensor argmin(const Tensor& x);

// Returns x summed over the dims in which `shape` was broadcast to x's shape; x itself if it has that shape.
// Errors: ShapeError unless `shape` broadcasts to x's.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace gradus::raw
