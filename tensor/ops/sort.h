// Raw sorting, selection and search. NaN counts as larger than all numbers, -0 equals 0, and equal elements
// keep their order.
#pragma once

#include <optional>
#include <utility>

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Which element of a line the `select` kernel takes.
enum class Selection {
  kKth,        // the k-th smallest, counted from 0
  kMedian,     // the lower median; the first NaN where there is one
  kNanMedian,  // the lower median of the elements that are not NaN; NaN when all are NaN
  kMode,       // the most frequent element, the smallest of several; its last place
};

// Kernels take row-major tensors of any dtype, seen as [outer, n, inner] (as_lines). Indices are i64.
// clang-format off
// values, indices [outer, k, inner] = the first k elements of each sorted line, k <= n.
extern KernelSlot<void(const Tensor& values, const Tensor& indices, const Tensor& x, bool descending)>
    sort_kernel;
// values, indices [outer, 1, inner].
extern KernelSlot<void(const Tensor& values, const Tensor& indices, const Tensor& x, Selection what, int64_t
    k)> select_kernel;
// order [n] = the row numbers of x [n, m] in the lexicographic order of the rows.
extern KernelSlot<void(const Tensor& order, const Tensor& x)> sort_rows_kernel;
// out = how many elements of `sorted` [lines or 1, n] come before each of values [lines, m], with `right`
// also those that equal it. Both have one dtype.
extern KernelSlot<void(const Tensor& out, const Tensor& sorted, const Tensor& values, bool right)>
    searchsorted_kernel;
// out [bins], f64 or f32 like x = how many elements lie in each of the equal parts of [low, high]. Equal
// bounds stand for the range of x.
extern KernelSlot<void(const Tensor& out, const Tensor& x, double low, double high)> histc_kernel;
// clang-format on

std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending);
std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest);
// `k` counts from 1.
std::pair<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim);
// Returns a selection other than kKth. `op` is for error texts.
std::pair<Tensor, Tensor> select_along(const Tensor& x, Selection what, int64_t dim, bool keepdim,
                                       std::string_view op);

struct Unique {
  Tensor values, inverse, counts, index;
};
// What unique computes besides the values.
struct UniqueWants {
  bool inverse = false, counts = false, index = false;
};
// Returns the distinct elements of x, or its distinct slices along `dim` if given, in order. With
// `consecutive` it keeps x's order and only leaves out elements that equal the one before. Computes inverse,
// counts and index (the first places) where wanted. Waits for the device.
Unique unique(const Tensor& x, std::optional<int64_t> dim, bool consecutive, UniqueWants wants);

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right);
Tensor histc(const Tensor& x, int64_t bins, double low, double high);
// Errors: DeviceError for a meta tensor: the shape of the result depends on values.
void check_has_values(const Tensor& x, std::string_view op);

}  // namespace gradus::raw
