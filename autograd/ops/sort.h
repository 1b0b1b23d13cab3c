// Sorting, selection, distinct values, search and counting. Along `dim`, the last unless given. NaN counts
// as larger than all numbers; equal elements keep their order, so results are the same on every run.
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
// Returns the elements in order, and where they stood: auto [values, indices] = sort(x,
// {.descending = true}).
// Shapes: x[...] -> the same, twice.
// Errors: IndexError for a dim that x has not; so do all below.
// Grad: dy put back at the indices.
ValuesAndIndices sort(const Tensor& x, const SortOptions& options = {});
// Returns the indices alone.
Tensor argsort(const Tensor& x, const SortOptions& options = {});

struct TopkOptions {
  int64_t dim = -1;
  bool largest = true;
  bool sorted = true;  // results are in order in any case
};
// Returns the k largest, or smallest, elements in order, and where they stood.
// Shapes: x[...,n,...] -> [...,k,...].
// Errors: ValueError unless 0 <= k <= n.
// Grad: dy put back at the indices.
ValuesAndIndices topk(const Tensor& x, int64_t k, const TopkOptions& options = {});

struct AlongOptions {
  int64_t dim = -1;
  bool keepdim = false;
};
// Returns the k-th smallest element, counted from 1, and the first place where it stands.
// Shapes: x[...,n,...] -> [...].
// Errors: ValueError unless 1 <= k <= n.
// Grad: dy put back at the index.
ValuesAndIndices kthvalue(const Tensor& x, int64_t k, const AlongOptions& options = {});

// Returns the median, of an even number of elements the lower of the two in the middle; NaN
// where there is one.
// Errors: ShapeError for no elements (without `options` and of floats: NaN).
// Grad: dy put back at the index; without `options` shared evenly among the elements that equal it.
Tensor median(const Tensor& x);
ValuesAndIndices median(const Tensor& x, const AlongOptions& options);
// The same of what is not NaN.
Tensor nanmedian(const Tensor& x);
ValuesAndIndices nanmedian(const Tensor& x, const AlongOptions& options);

// Returns the most frequent element, of several the smallest, and the last place where it stands.
// Errors: ShapeError for no elements.
// Grad: dy put back at the index.
ValuesAndIndices mode(const Tensor& x, const AlongOptions& options = {});

struct UniqueResult {
  Tensor values;   // the distinct elements, or slices
  Tensor inverse;  // where among them each element, or slice, of x is; undefined unless asked for
  Tensor counts;   // how often each occurs; undefined unless asked for
  Tensor index;    // where each stands in x first; undefined unless asked for
};
struct UniqueOptions {
  bool sorted = true;  // results are in order in any case
  bool return_inverse = false, return_counts = false, return_index = false;
  std::optional<int64_t> dim = {};  // none: the elements of x as one line; else slices along dim
};
// Returns the distinct elements of x in order. Every NaN is distinct. Waits for the device;
// constant for autograd.
// Shapes: x[...] -> values[k], inverse like x, counts[k], index[k] into the flattened x; with `dim`
// values[...,k,...], inverse[n], counts[k], index[k].
// Errors: DeviceError for a meta tensor; ShapeError for a `dim` with slices that have no elements.
UniqueResult unique(const Tensor& x, const UniqueOptions& options = {});

struct UniqueConsecutiveOptions {
  bool return_inverse = false, return_counts = false, return_index = false;
  std::optional<int64_t> dim = {};
};
// Returns x without the elements (or slices) that equal the one before. Otherwise as unique.
UniqueResult unique_consecutive(const Tensor& x, const UniqueConsecutiveOptions& options = {});

struct BincountOptions {
  Tensor weights = {};  // what each occurrence counts for; 1 when undefined
  int64_t minlength = 0;
};
// Counts how often each number occurs. Waits for the device.
// Shapes: x i[n] -> [max(largest + 1, minlength)], i64, or of the weights' dtype (f64 unless
// they are floating).
// Errors: DTypeError unless x is integers; ShapeError unless x has 1 dim and weights are like it; ValueError
// for a negative number or minlength; DeviceError for a meta tensor.
// Grad: weights dy at x.
Tensor bincount(const Tensor& x, const BincountOptions& options = {});

struct HistcOptions {
  int64_t bins = 100;
  double min = 0, max = 0;  // equal: the range of x
};
// Counts the elements in each of `bins` equal parts of [min, max]; others, and NaN, are left out.
// Constant for autograd.
// Errors: DTypeError unless floating point; ValueError for fewer than 1 bin, bounds out of
// order or not finite.
Tensor histc(const Tensor& x, const HistcOptions& options = {});

struct SearchOptions {
  bool right = false;  // behind equal elements instead of before them
  bool out_int32 = false;
};
// Returns where each of `values` is to be inserted along the last dim of `sorted` to keep it in order.
// Shapes: sorted[n], values[...] -> like values; or sorted[...,n], values[...,m] -> [...,m].
// Errors: ShapeError unless shapes are so; DeviceError.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, const SearchOptions& options = {});
// The same with the arguments the other way round, and one line of boundaries.
// Errors: ShapeError unless boundaries have 1 dim.
Tensor bucketize(const Tensor& values, const Tensor& boundaries, const SearchOptions& options = {});

struct IsinOptions {
  bool assume_unique = false;  // no difference here
  bool invert = false;
};
// Returns whether each element of x is among `test`'s, as bool; NaN is among none.
// Errors: DeviceError.
Tensor isin(const Tensor& x, const Tensor& test, const IsinOptions& options = {});

}  // namespace gradus
