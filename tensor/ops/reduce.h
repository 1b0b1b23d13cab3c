// Raw reductions. `dims` empty means all dimensions; `keepdim` leaves reduced dimensions with size 1. Results
// are row-major and the same for any number of threads.
#pragma once

#include <utility>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Kernels reduce the dims in which `out`, which has as many as x, has size 1. x may be strided. sum takes every dtype;
// prod f64, f32, i64; amax, amin all but f16 and bf16; any, all bool; norm f64, f32.
// clang-format off
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x, double scale)> sum_kernel{"sum"};
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x)> prod_kernel{"prod"};
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x)> amax_kernel{"amax"};
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x)> amin_kernel{"amin"};
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x)> any_kernel{"any"};
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x)> all_kernel{"all"};
// out = (scale * sum |x|^p)^(root ? 1/p : 1); p = 0 counts, p = +-inf takes the largest or smallest |x|.
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x, double p, double scale, bool root)> norm_kernel{"norm"};
// Row-major x seen as [outer, n, inner]; values and indices as [outer, inner]. The first of equals wins, NaN beats all.
inline constinit KernelSlot<void(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t inner, bool largest)>
    extremum_kernel{"max"};
// Running sums of row-major x seen as [outer, n, inner].
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x, int64_t inner, bool reverse)> cumsum_kernel{"cumsum"};
// clang-format on

// The dims as flags, all of them when `dims` is empty. Errors: IndexError, ShapeError for a repeated dim.
std::array<bool, kMaxDims> reduced_dims(const Tensor& x, const Dims& dims, std::string_view op);
// The result's shape. Errors: as reduced_dims.
Shape reduced_shape(const Tensor& x, const Dims& dims, bool keepdim, std::string_view op);
// How many elements go into one result.
int64_t reduced_numel(const Tensor& x, const Dims& dims, std::string_view op);
// A row-major result to fill: with the reduced dims kept, as kernels want it, and in its final shape.
struct ReductionResult {
  Tensor kept, result;
};
ReductionResult make_reduction(const Tensor& x, const Dims& dims, bool keepdim, DType dtype, std::string_view op);

Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor norm(const Tensor& x, const Dims& dims = {}, double p = 2, bool keepdim = false);
Tensor cumsum(const Tensor& x, int64_t dim, bool reverse = false);

// Values and i64 indices along `dim`.
std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false);
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false);
// Index into the flattened x.
Tensor argmax(const Tensor& x);
Tensor argmin(const Tensor& x);

// Sums x to `shape`, undoing a broadcast from it; x itself when it has that shape. Errors: ShapeError.
Tensor sum_to(const Tensor& x, const Shape& shape);

}  // namespace gradus::raw
