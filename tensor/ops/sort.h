// Raw sort, topk, kthvalue, median, mode, unique, searchsorted and histc. NaN sorts after all numbers, -0 equals
// 0, and sorting is stable.
#pragma once

#include <optional>
#include <utility>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// The element of a slice along dim 1 that the select kernel returns.
enum class Selection {
  kKth,        // the k-th smallest, counted from 0
  kMedian,     // the lower median; the first NaN if there is one
  kNanMedian,  // the lower median of the elements that are not NaN; NaN if all are NaN
  kMode,       // the most frequent element, the smallest of several; the index of its last occurrence
};

// Kernels take row-major tensors of any dtype, seen as [outer, n, inner] (as_slices). Indices are i64.
// clang-format off
// values, indices [outer, k, inner] = the first k <= n elements of each slice in sorted order.
extern KernelSlot<void(const Tensor& values, const Tensor& indices, const Tensor& x, bool descending)>
    sort_kernel;
// values, indices [outer, 1, inner].
extern KernelSlot<void(const Tensor& values, const Tensor& indices, const Tensor& x, Selection what, int64_t
    k)> select_kernel;
// order [n] = the row indices of x [n, m] in lexicographic order of the rows.
extern KernelSlot<void(const Tensor& order, const Tensor& x)> sort_rows_kernel;
// out [rows, m] = the number of elements of the row of `sorted` [rows, n] that are less than the element of
// values [rows, m]; with `right`, less or equal. Both have the same dtype.
extern KernelSlot<void(const Tensor& out, const Tensor& sorted, const Tensor& values, bool right)>
    searchsorted_kernel;
// out [bins] = the number of elements in each of `bins` equal parts of [low, high]; the last part includes
// `high`, elements outside and NaN are not counted. f64 or f32. Equal bounds mean the range of x: ValueError
// if an element of x is NaN or infinite.
extern KernelSlot<void(const Tensor& out, const Tensor& x, double low, double high)> histc_kernel;
// clang-format on

// Return values and i64 indices along `dim`: all, or the k largest (smallest), in sorted order.
// Errors: IndexError for `dim`; ValueError unless 0 <= k <= size.
std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending);
std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest);
// Returns the k-th smallest element along `dim`, k from 1, and its index. Errors: as topk.
std::pair<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim);
// Returns a selection other than kKth along `dim`, with indices. `op` is the name in errors.
// Errors: IndexError for `dim`; ShapeError if its size is 0.
std::pair<Tensor, Tensor> select_along(const Tensor& x, Selection what, int64_t dim, bool keepdim,
                                       std::string_view op);

// Undefined unless requested, except `values`. x has the elements values[inverse].
struct Unique {
  Tensor values, inverse, counts, index;
};
// The optional results of unique.
struct UniqueOutputs {
  bool inverse = false, counts = false, index = false;
};
// Returns the distinct elements of x, or the distinct slices along `dim` if given, sorted. With `consecutive`,
// only elements that equal their predecessor are removed. index: the first occurrence in x of each value. Blocks
// until the device has computed the number of values.
// Errors: DeviceError for a meta tensor; IndexError for `dim`; ShapeError for slices without elements.
Unique unique(const Tensor& x, std::optional<int64_t> dim, bool consecutive, UniqueOutputs wants);

// Shapes: sorted [n], or [..., n] with the leading dims of values [..., m] -> i64 [..., m]. See the kernel.
// Mixed dtypes are promoted. Errors: ShapeError, DeviceError.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right);
// Returns [bins], in x's floating dtype. See the kernel. Errors: DTypeError unless floating; ValueError
// unless low <= high are finite, for less than 1 bin, and as the kernel.
Tensor histc(const Tensor& x, int64_t bins, double low, double high);
// Checks that x is not a meta tensor, for ops whose result shape depends on values.
// Errors: DeviceError.
void check_not_meta(const Tensor& x, std::string_view op);

}  // namespace gradus::raw
