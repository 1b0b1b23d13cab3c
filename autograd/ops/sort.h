// Sorting, selection, distinct values, binary search and counting along `dim` (default: the last). NaN counts
// as larger than all numbers. Sorts are stable. Indices are i64.
#pragma once

#include <optional>

#include "gradus/autograd/ops/reduce.h"  // ValuesAndIndices
#include "gradus/tensor/tensor.h"

namespace gradus {

struct SortOptions {
  int64_t dim = -1;
  bool descending = false;
  bool stable = true;  // has no effect: sorts are stable
};
// Returns the elements in order, and their positions in x:
//   auto [values, indices] = sort(x, {.descending = true});
// Shapes: x[...] -> the same, twice.
// Errors of this and all ops below: StateError for an undefined tensor, IndexError for a dim that x lacks.
// Grad: dy scattered to the indices.
ValuesAndIndices sort(const Tensor& x, const SortOptions& options = {});
// Returns the indices only.
Tensor argsort(const Tensor& x, const SortOptions& options = {});

struct TopkOptions {
  int64_t dim = -1;
  bool largest = true;
  bool sorted = true;  // has no effect: results are sorted
};
// Returns the k largest, or smallest, elements in order, and their positions in x.
// Shapes: x[...,n,...] -> [...,k,...].
// Errors: ValueError unless 0 <= k <= n.
// Grad: dy scattered to the indices.
ValuesAndIndices topk(const Tensor& x, int64_t k, const TopkOptions& options = {});

struct DimOptions {
  int64_t dim = -1;
  bool keepdim = false;
};
// Returns the k-th smallest element, counted from 1, and its position; equal elements count in x's order.
// Shapes: x[...,n,...] -> [...].
// Errors: ValueError unless 1 <= k <= n.
// Grad: dy scattered to the index.
ValuesAndIndices kthvalue(const Tensor& x, int64_t k, const DimOptions& options = {});

// Return the median: the lower of the two middle elements if their number is even; NaN if an element is NaN.
// Without `options`, of all elements of x.
// Errors: ShapeError when there are no elements; but without `options`, NaN for a floating-point x.
// Grad: dy scattered to the index; without `options`, dy divided evenly among elements equal to the median.
Tensor median(const Tensor& x);
ValuesAndIndices median(const Tensor& x, const DimOptions& options);
// The median of the elements that are not NaN.
Tensor nanmedian(const Tensor& x);
ValuesAndIndices nanmedian(const Tensor& x, const DimOptions& options);

// Returns the most frequent element, the smallest one of several, and its last position.
// Errors: ShapeError for no elements.
// Grad: dy scattered to the index.
ValuesAndIndices mode(const Tensor& x, const DimOptions& options = {});

struct UniqueResult {
  Tensor values;   // the distinct elements, or slices
  Tensor inverse;  // position in `values` of each element, or slice, of x; undefined unless requested
  Tensor counts;   // number of occurrences of each value; undefined unless requested
  Tensor index;    // each value's first position in x; undefined unless requested
};
struct UniqueOptions {
  bool sorted = true;  // has no effect: results are sorted
  bool return_inverse = false, return_counts = false, return_index = false;
  std::optional<int64_t> dim = {};  // nullopt: distinct elements of the flattened x; else slices along dim
};
// Returns the distinct elements of x in ascending order. Each NaN counts as distinct. Waits for the device.
// Not differentiable.
// Shapes: x[...] -> values[k], inverse like x, counts[k], index[k] into the flattened x; with `dim`
// values[...,k,...], inverse[n], counts[k], index[k].
// Errors: DeviceError for a meta tensor; ShapeError for a `dim` with slices that have no elements.
UniqueResult unique(const Tensor& x, const UniqueOptions& options = {});

struct UniqueConsecutiveOptions {
  bool return_inverse = false, return_counts = false, return_index = false;
  std::optional<int64_t> dim = {};
};
// As unique, but removes only elements (or slices) that equal the preceding one, and keeps x's order.
UniqueResult unique_consecutive(const Tensor& x, const UniqueConsecutiveOptions& options = {});

struct BincountOptions {
  Tensor weights = {};  // weight of each occurrence; undefined: 1
  int64_t minlength = 0;
};
// y[i] = number (or sum of the weights) of elements of x that equal i. Waits for the device.
// Shapes: x i[n] -> [max(largest + 1, minlength)], i64, or of the weights' dtype (f64 unless
// they are floating).
// Errors: DTypeError unless x is integers; ShapeError unless x has 1 dim and weights are like it; ValueError
// for a negative number or minlength; DeviceError for a meta tensor.
// Grad: to weights, dy at x.
Tensor bincount(const Tensor& x, const BincountOptions& options = {});

struct HistcOptions {
  int64_t bins = 100;
  double min = 0, max = 0;  // range of the histogram; if equal, the smallest and largest element of x
};
// Histogram: counts the elements in each of `bins` bins of equal width in [min, max]. Elements outside, and
// NaN, are not counted. Counts have x's dtype. Not differentiable.
// Errors: DTypeError unless floating point; ValueError for fewer than 1 bin, for bounds that are out of order
// or not finite, and if min equals max, for NaN or infinite elements of x.
Tensor histc(const Tensor& x, const HistcOptions& options = {});

struct SearchOptions {
  bool right = false;  // upper bound (after equal elements) instead of lower bound (before them)
  bool out_int32 = false;
};
// Binary search: for each of `values`, the position along the last dim of `sorted` (ascending) at which an
// insertion keeps the order. Dtypes are promoted. Positions are i64, or i32 with out_int32.
// Shapes: sorted[n], values[...] -> like values; or sorted[...,n], values[...,m] -> [...,m].
// Errors: ShapeError for other shapes; DeviceError.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, const SearchOptions& options = {});
// searchsorted(boundaries, values, options) with `boundaries` of one dim.
// Errors: ShapeError unless boundaries have 1 dim.
Tensor bucketize(const Tensor& values, const Tensor& boundaries, const SearchOptions& options = {});

struct IsinOptions {
  bool assume_unique = false;  // has no effect
  bool invert = false;
};
// Returns for each element of x whether `test` contains it, as bool. NaN equals no element.
// Errors: DeviceError.
Tensor isin(const Tensor& x, const Tensor& test, const IsinOptions& options = {});

}  // namespace gradus
