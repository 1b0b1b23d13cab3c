// Reductions and cumulative ops. `dims` lists the dims to reduce, {} all of them; negative ones count from
// the end. A single dim may be a number: sum(x, -1), sum(x, 1, {.keepdim = true}). With `keepdim` the result
// keeps reduced dims with size 1. Results are row-major and bitwise the same for any number of threads. f32
// sums are accumulated in f64.
#pragma once

#include <utility>

#include "gradus/autograd/ops/view.h"  // sum_to
#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns the sum of x's elements; i64 for integers and bools.
// Shapes: x[...] -> [...] without `dims`.
// Errors of this and all other functions: StateError for an undefined x, IndexError for a dim that x does not
// have, ShapeError for a repeated dim.
// Grad: dy expanded to x's shape.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

// Returns the mean; NaN for no elements.
// Errors: DTypeError unless floating point.
// Grad: dy / n expanded to x's shape.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

// Returns the product; i64 for integers.
// Grad: dy times the product of the other factors, exact also where x is 0.
Tensor prod(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

// Return the largest, or smallest, element; NaN where one of the elements is NaN.
// Errors: ShapeError for a reduction over no elements.
// Grad: dy, divided evenly among the elements that equal the result.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);

struct MinAndMax {
  Tensor min, max;
};
// Returns the smallest and the largest element, of all elements or along `dim`.
// Errors and Grad: as amin and amax.
MinAndMax aminmax(const Tensor& x);
MinAndMax aminmax(const Tensor& x, int64_t dim, bool keepdim = false);

// Values along one dim and their i64 indices. For equal values the index is that of the first.
struct ValuesAndIndices {
  Tensor values, indices;
};
// Return the largest, or smallest, elements along `dim` with their indices; the first NaN, if there is one:
//   auto [values, indices] = max(x, 1);
// Errors: ShapeError for a dim of size 0.
// Grad: dy at the indices, zeros elsewhere.
ValuesAndIndices max(const Tensor& x, int64_t dim, bool keepdim = false);
ValuesAndIndices min(const Tensor& x, int64_t dim, bool keepdim = false);

// Return the i64 indices of the largest, or smallest, elements along `dim`, or in the flattened x, as max
// does.
// Errors: ShapeError for no elements.
Tensor argmax(const Tensor& x);
Tensor argmin(const Tensor& x);
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim = false);
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim = false);

struct VarOptions {
  int64_t correction = 1;  // the divisor is max(0, n - correction); 0 gives infinity or NaN
  bool keepdim = false;
};
// Returns the variance, sum (x - mean)^2 / (n - correction).
// Errors: DTypeError unless floating point.
// Grad: dy 2 (x - mean) / (n - correction).
Tensor var(const Tensor& x, const Dims& dims = {}, VarOptions options = {});
// Returns the standard deviation, the root of the variance.
// Grad: dy (x - mean) / ((n - correction) y); 0 where the deviation is 0.
Tensor std(const Tensor& x, const Dims& dims = {}, VarOptions options = {});

// Return the variance, or the standard deviation, and the mean: auto [v, m] = var_mean(x, {1}).
// Errors: DTypeError unless floating point.
std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims = {}, VarOptions options = {});
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims = {}, VarOptions options = {});

// Returns the p-norm, (sum |x|^p)^(1/p), for any real p. p = 0 counts the elements that are not 0; p =
// infinity is the largest |x|, p = -infinity the smallest.
// Errors: DTypeError unless floating point; ShapeError for an infinite p over no elements.
// Grad: dy sign(x) |x|^(p-1) / y^(p-1), and 0 where x or y is 0, to any order; for infinite p, dy sign(x)
// divided evenly among the elements with |x| = y; none for p = 0.
Tensor norm(const Tensor& x, const Dims& dims = {}, double p = 2, bool keepdim = false);
// Deleted, because the number in norm(x, 1) could be a dim or p. norm(x, {1}) reduces dim 1; vector_norm(x,
// 1) is the sum of magnitudes.
template <DimIndex I> Tensor norm(const Tensor& x, I dim_or_p, double p = 2, bool keepdim = false) = delete;
// The same with the arguments in the order of torch.linalg.vector_norm.
Tensor vector_norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);

// Return the sum, or the mean, of the elements that are not NaN. The mean of no elements is NaN.
// Errors: nanmean: DTypeError unless floating point.
// Grad: as sum and mean, 0 at NaN.
Tensor nansum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor nanmean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

// Returns the number of elements that are not 0, as i64.
Tensor count_nonzero(const Tensor& x, const Dims& dims = {});

// Returns log sum exp(x), without overflow; {} reduces all dims.
// Errors: DTypeError unless floating point.
// Grad: dy exp(x - y).
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);

// Return whether any, or all, elements are not 0, as bool.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);

struct CumulativeOptions {
  bool reverse = false;    // accumulates from the end of the dim
  bool exclusive = false;  // y_i does not include x_i
};
// Cumulative sum along `dim`; i64 for integers. With `exclusive` the first is 0.
// Grad: cumulative sum of dy from the other end.
Tensor cumsum(const Tensor& x, int64_t dim, const CumulativeOptions& options = {});

// Cumulative product along `dim`; i64 for integers. With `exclusive` the first is 1.
// Grad: exact also where x is 0, to any order.
Tensor cumprod(const Tensor& x, int64_t dim, const CumulativeOptions& options = {});

// Logarithm of the cumulative sum of exp(x) along `dim`, without overflow.
// Errors: DTypeError unless floating point.
// Grad: dx_i = sum over k >= i of dy_k exp(x_i - y_k).
Tensor logcumsumexp(const Tensor& x, int64_t dim);

// Cumulative maximum, or minimum, along `dim` and the i64 indices; the index is that of the last of equal
// elements. After a NaN all values are NaN.
// Grad: dy added at the indices.
ValuesAndIndices cummax(const Tensor& x, int64_t dim);
ValuesAndIndices cummin(const Tensor& x, int64_t dim);

// First-order linear recurrence along `dim`: y_0 = b_0, y_i = b_i + a_i y_(i-1). With `reverse` it runs from
// the end: y_i = b_i + a_i y_(i+1).
// Shapes: a, b of one shape and dtype -> the same.
// Errors: DTypeError unless floating point; ShapeError unless a and b match; DeviceError.
// Grad: to b, the recurrence of dy in the other direction; to a, the gradient of b times y_(i-1).
Tensor linear_recurrence(const Tensor& a, const Tensor& b, int64_t dim, bool reverse = false);

struct DiffOptions {
  int64_t n = 1;  // order: the number of times differences are taken
  int64_t dim = -1;
  Tensor prepend = {}, append = {};  // concatenated with x along dim first
};
// Differences y_i = x_(i+1) - x_i along a dim. For bools, y_i is whether x_(i+1) and x_i differ.
// Shapes: x[..., m, ...] -> [..., max(m - n, 0), ...], where m includes prepend and append.
// Errors: ValueError for negative n; ShapeError for 0-dim x, or prepend or append unlike x.
Tensor diff(const Tensor& x, const DiffOptions& options = {});

// The reductions above with {.keepdim = true} in place of the bool.
struct KeepDimOptions {
  bool keepdim = false;
};
inline Tensor sum(const Tensor& x, const Dims& dims, KeepDimOptions o) { return sum(x, dims, o.keepdim); }
inline Tensor mean(const Tensor& x, const Dims& dims, KeepDimOptions o) { return mean(x, dims, o.keepdim); }
inline Tensor prod(const Tensor& x, const Dims& dims, KeepDimOptions o) { return prod(x, dims, o.keepdim); }
inline Tensor amax(const Tensor& x, const Dims& dims, KeepDimOptions o) { return amax(x, dims, o.keepdim); }
inline Tensor amin(const Tensor& x, const Dims& dims, KeepDimOptions o) { return amin(x, dims, o.keepdim); }
inline Tensor any(const Tensor& x, const Dims& dims, KeepDimOptions o) { return any(x, dims, o.keepdim); }
inline Tensor all(const Tensor& x, const Dims& dims, KeepDimOptions o) { return all(x, dims, o.keepdim); }
inline Tensor nansum(const Tensor& x, const Dims& dims, KeepDimOptions o) {
  return nansum(x, dims, o.keepdim);
}
inline Tensor nanmean(const Tensor& x, const Dims& dims, KeepDimOptions o) {
  return nanmean(x, dims, o.keepdim);
}
inline Tensor logsumexp(const Tensor& x, const Dims& dims, KeepDimOptions o) {
  return logsumexp(x, dims, o.keepdim);
}
inline ValuesAndIndices max(const Tensor& x, int64_t dim, KeepDimOptions o) { return max(x, dim, o.keepdim); }
inline ValuesAndIndices min(const Tensor& x, int64_t dim, KeepDimOptions o) { return min(x, dim, o.keepdim); }
inline MinAndMax aminmax(const Tensor& x, int64_t dim, KeepDimOptions o) {
  return aminmax(x, dim, o.keepdim);
}
inline Tensor argmax(const Tensor& x, int64_t dim, KeepDimOptions o) { return argmax(x, dim, o.keepdim); }
inline Tensor argmin(const Tensor& x, int64_t dim, KeepDimOptions o) { return argmin(x, dim, o.keepdim); }

}  // namespace gradus
