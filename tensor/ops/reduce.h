// Raw reductions. `dims` empty means all dimensions; `keepdim` leaves reduced dimensions with size 1. Results
// are row-major and the same for any number of threads.
#pragma once

#include <utility>

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Kernels reduce the dims in which `out`, which has as many as x, has size 1. x may be strided. sum takes
// every dtype; prod f64, f32, i64; amax, amin all but f16 and bf16; any, all bool; norm f64, f32.
// clang-format off
extern KernelSlot<void(const Tensor& out, const Tensor& x, double scale)> sum_kernel;
// out = scale * sum (x - mean)^2. f64 and f32.
extern KernelSlot<void(const Tensor& out, const Tensor& x, double scale)> var_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> prod_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> amax_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> amin_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> any_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> all_kernel;
// out = (scale * sum |x|^p)^(root ? 1/p : 1); p = 0 counts, p = +-inf takes the largest or smallest |x|.
extern KernelSlot<void(const Tensor& out, const Tensor& x, double p, double scale, bool root)> norm_kernel;
// Row-major x seen as [outer, n, inner]; values and indices as [outer, inner]. The first of equals
// wins, NaN beats all.
extern KernelSlot<void(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t inner, bool
    largest)> extremum_kernel;
// Along the middle of row-major tensors seen as [outer, n, inner] (as_lines).
extern KernelSlot<void(const Tensor& out, const Tensor& x, bool reverse)> cumsum_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x, bool reverse)> cumprod_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x)> logcumsumexp_kernel;
extern KernelSlot<void(const Tensor& values, const Tensor& indices, const Tensor& x, bool largest)>
    running_extremes_kernel;
// y_i = b_i + a_i y_(i-1), or y_(i+1) in reverse; what lies outside is 0. f64 and f32.
extern KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, bool reverse)>
    linear_recurrence_kernel;
// clang-format on

// The dims as flags, all of them when `dims` is empty.
// Errors: IndexError, ShapeError for a repeated dim.
std::array<bool, kMaxDims> reduced_dims(const Tensor& x, const Dims& dims, std::string_view op);
// The result's shape.
// Errors: as reduced_dims.
Shape reduced_shape(const Tensor& x, const Dims& dims, bool keepdim, std::string_view op);
// How many elements go into one result.
int64_t reduced_numel(const Tensor& x, const Dims& dims, std::string_view op);
// Errors: ShapeError when a result would be a reduction of no elements.
void check_not_empty(const Tensor& x, const Dims& dims, std::string_view op);
// Errors: as reduced_dims; DTypeError unless floating point.
void check_reducible_float(const Tensor& x, const Dims& dims, std::string_view op);
// A row-major result to fill: with the reduced dims kept, as kernels want it, and in its final shape.
struct ReductionResult {
  Tensor kept, result;
};
ReductionResult make_reduction(const Tensor& x, const Dims& dims, bool keepdim, DType dtype,
                               std::string_view op);

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
// Values and i64 indices of the largest, or smallest, elements so far.
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim);
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim);
Tensor linear_recurrence(const Tensor& a, const Tensor& b, int64_t dim, bool reverse = false);

// Views a row-major x as [outer, n, inner] with n = x's size along `dim`.
// Errors: IndexError.
Tensor as_lines(const Tensor& x, int64_t dim, std::string_view op);

// Values and i64 indices along `dim`.
std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false);
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false);
// Index into the flattened x.
Tensor argmax(const Tensor& x);
Tensor argmin(const Tensor& x);

// Sums x to `shape`, undoing a broadcast from it; x itself when it has that shape.
// Errors: ShapeError.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace gradus::raw
