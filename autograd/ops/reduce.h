// Reductions. `dims` lists the dimensions that disappear, {} all of them; negative ones count from the back;
// `keepdim` leaves them with size 1. A single dimension may be given as a number: sum(x, -1). Results are
// row-major and the same for any number of threads; f32 sums are accumulated in f64.
#pragma once

#include <concepts>
#include <utility>

#include "gradus/autograd/ops/view.h"  // sum_to
#include "gradus/tensor/tensor.h"

namespace gradus {

// A single dimension: any integer type but bool.
template <class T>
concept DimIndex = std::integral<T> && !std::same_as<T, bool>;

// Returns the sum of x's elements; of integers as i64.
// Shapes: x[...] -> [...] without `dims`.
// Errors: IndexError for a dim that x has not, ShapeError for one named twice; so do all reductions.
// Grad: dy expanded to x's shape.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

// Returns the mean; NaN of no elements.
// Errors: DTypeError unless floating point.
// Grad: dy / n expanded to x's shape.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

// Returns the product; of integers as i64.
// Grad: dy times the product of the others, right also where x is 0.
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

// Returns the largest, or smallest, element; NaN where there is one.
// Errors: ShapeError for a reduction over no elements.
// Grad: dy, shared evenly among the elements that attain it.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);

// Values along one dim, and the i64 indices where they stand (the first of equals).
struct ValuesAndIndices {
  Tensor values, indices;
};
// Returns the largest, or smallest, elements along `dim` with their indices: auto [values, indices] = max(x,
// 1). Errors: ShapeError for a dim of size 0. Grad: dy at the indices.
ValuesAndIndices max(const Tensor& x, int64_t dim, bool keepdim = false);
ValuesAndIndices min(const Tensor& x, int64_t dim, bool keepdim = false);

// Returns the i64 indices of the largest, or smallest, elements along `dim`, or in the flattened x.
Tensor argmax(const Tensor& x);
Tensor argmin(const Tensor& x);
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim = false);

struct VarOptions {
  int64_t correction = 1;  // the divisor is n - correction
  bool keepdim = false;
};
// Returns the variance, sum (x - mean)^2 / (n - correction).
// Errors: DTypeError unless floating point.
// Grad: dy 2 (x - mean) / (n - correction).
Tensor var(const Tensor& x, const Dims& dims = {}, VarOptions options = {});
// Returns the standard deviation, the root of the variance. Grad: 0 where it is 0.
Tensor std(const Tensor& x, const Dims& dims = {}, VarOptions options = {});

// Returns the p-norm, (sum |x|^p)^(1/p); p = 0 counts what is not 0, p = infinity gives the largest |x|.
// Errors: DTypeError unless floating point.
// Grad: for p = 2 dy x / y, and 0 where y is 0.
Tensor norm(const Tensor& x, const Dims& dims = {}, double p = 2, bool keepdim = false);

// Returns log sum exp(x), without overflow.
// Errors: DTypeError unless floating point.
// Grad: dy exp(x - y).
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);

// Returns whether any, or all, elements are not 0, as bool.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

// Returns the running sums along `dim`, from its start (or, `reverse`, from its end).
// Grad: running sums of dy from the other end.
Tensor cumsum(const Tensor& x, int64_t dim, bool reverse = false);

// The same for one dim given as a number.
// clang-format off
template <DimIndex I> Tensor sum(const Tensor& x, I dim, bool keepdim = false) { return sum(x, Dims{dim}, keepdim); }
template <DimIndex I> Tensor mean(const Tensor& x, I dim, bool keepdim = false) { return mean(x, Dims{dim}, keepdim); }
template <DimIndex I> Tensor prod(const Tensor& x, I dim, bool keepdim = false) { return prod(x, Dims{dim}, keepdim); }
template <DimIndex I> Tensor amax(const Tensor& x, I dim, bool keepdim = false) { return amax(x, Dims{dim}, keepdim); }
template <DimIndex I> Tensor amin(const Tensor& x, I dim, bool keepdim = false) { return amin(x, Dims{dim}, keepdim); }
template <DimIndex I> Tensor any(const Tensor& x, I dim, bool keepdim = false) { return any(x, Dims{dim}, keepdim); }
template <DimIndex I> Tensor all(const Tensor& x, I dim, bool keepdim = false) { return all(x, Dims{dim}, keepdim); }
template <DimIndex I> Tensor var(const Tensor& x, I dim, VarOptions o = {}) { return var(x, Dims{dim}, o); }
template <DimIndex I> Tensor std(const Tensor& x, I dim, VarOptions o = {}) { return std(x, Dims{dim}, o); }
template <DimIndex I> Tensor logsumexp(const Tensor& x, I dim, bool keepdim = false) { return logsumexp(x, Dims{dim}, keepdim); }
// clang-format on

}  // namespace gradus
