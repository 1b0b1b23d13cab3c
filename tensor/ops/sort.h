// Raw sorting, selection and search. Everywhere NaN counts as larger than all numbers, equal elements keep
// their order, and -0 equals 0.
#pragma once

#include <optional>
#include <utility>

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Which element of a line `select` takes.
enum class Selection {
  kKth,        // the k-th smallest, counted from 0
  kMedian,     // the lower median; the first NaN where there is one
  kNanMedian,  // the lower median of what is not NaN; NaN when all are
  kMode,       // the most frequent, the smallest of equally frequent ones; at its last place
};

// Kernels take row-major tensors of any dtype seen as [outer, n, inner] (as_lines); indices are i64.
// clang-format off
// values, indices [outer, k, inner], k <= n: the first k of each line in order.
extern KernelSlot<void(const Tensor& values, const Tensor& indices, const Tensor& x, bool descending)>
    sort_kernel;
// values, indices [outer, 1, inner].
extern KernelSlot<void(const Tensor& values, const Tensor& indices, const Tensor& x, Selection what, int64_t
    k)> select_kernel;
// order [n]: the rows of x [n, m] in lexicographic order.
extern KernelSlot<void(const Tensor& order, const Tensor& x)> sort_rows_kernel;
// out: how many of `sorted` [lines or 1, n] come before each of values [lines, m], which has its dtype; those
// equal to it too when `right`.
extern KernelSlot<void(const Tensor& out, const Tensor& sorted, const Tensor& values, bool right)>
    searchsorted_kernel;
// out [bins], f64 or f32 like x: how many elements lie in each part of [low, high]; of x's range if
// these are equal.
extern KernelSlot<void(const Tensor& out, const Tensor& x, double low, double high)> histc_kernel;
// clang-format on

std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending);
std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest);
// `k` counts from 1, as users count.
std::pair<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim);
// Any selection but kKth. `op` is for error texts.
std::pair<Tensor, Tensor> select_along(const Tensor& x, Selection what, int64_t dim, bool keepdim,
                                       std::string_view op);

struct Unique {
  Tensor values, inverse, counts, index;
};
// The distinct elements of x, of all when `dim` is none, else slices along it; in order, or, `consecutive`,
// without repetitions of the one before. Inverse, counts and first places are computed when wanted. Waits
// for the device.
struct UniqueWants {
  bool inverse = false, counts = false, index = false;
};
Unique unique(const Tensor& x, std::optional<int64_t> dim, bool consecutive, UniqueWants wants);

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right);
Tensor histc(const Tensor& x, int64_t bins, double low, double high);
// Errors: DeviceError for a meta tensor: the shape of the result depends on values.
void check_has_values(const Tensor& x, std::string_view op);

}  // namespace gradus::raw
