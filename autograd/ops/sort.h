// Sorting, selection, distinct values, search and counting along `dim` (default: the last). NaN counts
// as larger than all numbers. Equal elements keep their order, so results are the same on every run.
// Indices are i64.
#pragma once

#include <optional>

#include "gradus/autograd/ops/reduce.h"  // ValuesAndIndices
#include "gradus/tensor/tensor.h"

namespace gradus {

struct SortOptions {
  int64_t dim = -1;
  bool descending = false;
  bool stable = true;  // the order of equal elements is kept in any case
};
// Returns the elements in order, and their positions in x:
//   auto [values, indices] = sort(x, {.descending = true});
// Shapes: x[...] -> the same, twice.
// Errors: IndexError for a dim that x does not have; so do all ops below.
// Grad: dy put back at the indices.
ValuesAndIndices sort(const Tensor& x, const SortOptions& options = {});
// Returns the indices only.
Tensor argsort(const Tensor& x, const SortOptions& options = {});

struct TopkOptions {
  int64_t dim = -1;
  bool largest = true;
  bool sorted = true;  // results are in order in any case
};
// Returns the k largest, or smallest, elements in order, and their positions in x.
// Shapes: x[...,n,...] -> [...,k,...].
// Errors: ValueError unless 0 <= k <= n.
// Grad: dy put back at the indices.
ValuesAndIndices topk(const Tensor& x, int64_t k, const TopkOptions& options = {});

struct AlongOptions {
  int64_t dim = -1;
  bool keepdim = false;
};
// Returns the k-th smallest element, counted from 1, and its first position.
// Shapes: x[...,n,...] -> [...].
// Errors: ValueError unless 1 <= k <= n.
// Grad: dy put back at the index.
ValuesAndIndices kthvalue(const Tensor& x, int64_t k, const AlongOptions& options = {});

// Return the median: of an even number of elements, the lower of the two in the middle; NaN where one of the
// elements is NaN.
// Errors: ShapeError when x has no elements. Without `options` a floating-point x of no elements
// gives NaN instead.
// Grad: dy put back at the index; without `options` dy is shared evenly among the elements that
// equal the median.
Tensor median(const Tensor& x);
ValuesAndIndices median(const Tensor& x, const AlongOptions& options);
// The same of the elements that are not NaN.
Tensor nanmedian(const Tensor& x);
ValuesAndIndices nanmedian(const Tensor& x, const AlongOptions& options);

// Returns the most frequent element and its last position. Of several, the smallest one.
// Errors: ShapeError for no elements.
// Grad: dy put back at the index.
ValuesAndIndices mode(const Tensor& x, const AlongOptions& options = {});

struct UniqueResult {
  Tensor values;   // the distinct elements, or slices
  Tensor inverse;  // for each element, or slice, of x its position in values; undefined unless requested
  Tensor counts;   // how often each value occurs; undefined unless requested
  Tensor index;    // each value's first position in x; undefined unless requested
};
struct UniqueOptions {
  bool sorted = true;  // results are in order in any case
  bool return_inverse = false, return_counts = false, return_index = false;
  std::optional<int64_t> dim = {};  // none: the elements of the flattened x; else the slices along dim
};
// Returns the distinct elements of x in order. Every NaN is distinct. Waits for the device. Results are
// constants for autograd.
// Shapes: x[...] -> values[k], inverse like x, counts[k], index[k] into the flattened x; with `dim`
// values[...,k,...], inverse[n], counts[k], index[k].
// Errors: DeviceError for a meta tensor; ShapeError for a `dim` with slices that have no elements.
UniqueResult unique(const Tensor& x, const UniqueOptions& options = {});

struct UniqueConsecutiveOptions {
  bool return_inverse = false, return_counts = false, return_index = false;
  std::optional<int64_t> dim = {};
};
// Returns x without the elements (or slices) that equal the previous one. Otherwise as unique.
UniqueResult unique_consecutive(const Tensor& x, const UniqueConsecutiveOptions& options = {});

struct BincountOptions {
  Tensor weights = {};  // added for each occurrence; 1 when undefined
  int64_t minlength = 0;
};
// Counts how often each number occurs. Waits for the device.
// Shapes: x i[n] -> [max(largest + 1, minlength)], i64, or of the weights' dtype (f64 unless
// they are floating).
// Errors: DTypeError unless x is integers; ShapeError unless x has 1 dim and weights are like it; ValueError
// for a negative number or minlength; DeviceError for a meta tensor.
// Grad: to weights, dy at x.
Tensor bincount(const Tensor& x, const BincountOptions& options = {});

struct HistcOptions {
  int64_t bins = 100;
  double min = 0, max = 0;  // when equal, the range of x
};
// Counts the elements in each of `bins` equal parts of [min, max]. Elements outside, and NaN, are not
// counted. The result is a constant for autograd.
// Errors: DTypeError unless floating point; ValueError for fewer than 1 bin, or for bounds that are out of
// order or not finite.
Tensor histc(const Tensor& x, const HistcOptions& options = {});

struct SearchOptions {
  bool right = false;  // insert after equal elements instead of before them
  bool out_int32 = false;
};
// Returns, for each of `values`, its insert position along the last dim of `sorted` that keeps the order.
// Shapes: sorted[n], values[...] -> like values; or sorted[...,n], values[...,m] -> [...,m].
// Errors: ShapeError for other shapes; DeviceError.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, const SearchOptions& options = {});
// The same with the arguments in the other order, and `boundaries` of one dim.
// Errors: ShapeError unless boundaries have 1 dim.
Tensor bucketize(const Tensor& values, const Tensor& boundaries, const SearchOptions& options = {});

struct IsinOptions {
  bool assume_unique = false;  // has no effect
  bool invert = false;
};
// Returns whether `test` contains each element of x, as bool. NaN is contained in no `test`.
// Errors: DeviceError.
Tensor isin(const Tensor& x, const Tensor& test, const IsinOptions& options = {});

}  // namespace gradus
