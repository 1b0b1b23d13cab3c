// Sorting and selection along a dim (sort, topk, kthvalue, median, mode), unique, searchsorted and histc
// without autograd: checks, results, and calls of the kernels, which see a row-major x as [outer, n, inner]
// (as_slices) and run on x's device. A 0-dim tensor counts as one element along dim 0.
#include "gradus/tensor/ops/sort.h"

#include <cmath>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/concat.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

int64_t length_of(const Tensor& x, int64_t dim, std::string_view op) {
  const int d = wrap_dim(dim, std::max(x.dim(), 1), op);
  return x.dim() == 0 ? 1 : x.shape()[d];
}

// Returns x's shape with `n` elements along `dim`, or without that dim.
Shape shape_along(const Tensor& x, int64_t dim, int64_t n, bool keepdim, std::string_view op) {
  Shape s = x.shape();
  if (x.dim() == 0) return s;
  const int d = wrap_dim(dim, x.dim(), op);
  if (keepdim) {
    s[d] = n;
  } else {
    s.erase(d);
  }
  return s;
}

// Returns the first k elements in sorted order along `dim`, and their indices.
std::pair<Tensor, Tensor> sort_and_truncate(const Tensor& x, int64_t k, int64_t dim, bool descending,
                                            std::string_view op) {
  const Shape s = shape_along(x, dim, k, true, op);
  const Tensor values = empty(s, {.dtype = x.dtype(), .device = x.device()});
  const Tensor indices = empty(s, {.dtype = DType::kI64, .device = x.device()});
  if (values.numel() > 0)
    sort_kernel(as_slices(values, dim, op), as_slices(indices, dim, op), as_slices(contiguous(x), dim, op),
                descending);
  return {values, indices};
}

// Returns one element of each slice along `dim`, and its index. `k`, from 0, is for Selection::kKth.
std::pair<Tensor, Tensor> select_elements(const Tensor& x, Selection what, int64_t k, int64_t dim,
                                          bool keepdim, std::string_view op) {
  const Shape kept = shape_along(x, dim, 1, true, op), s = shape_along(x, dim, 1, keepdim, op);
  const Tensor values = empty(s, {.dtype = x.dtype(), .device = x.device()});
  const Tensor indices = empty(s, {.dtype = DType::kI64, .device = x.device()});
  const auto slices = [&](const Tensor& t) {
    return as_slices(view_as_strided(t, kept, row_major_strides(kept), 0), dim, op);
  };
  if (values.numel() > 0)
    select_kernel(slices(values), slices(indices), as_slices(contiguous(x), dim, op), what, k);
  return {values, indices};
}

// Computes the result of unique for x [n, ...]. order [n]: the indices that sort the rows of x; undefined for
// rows in their own order (unique_consecutive). starts bool[n]: whether a sorted row differs from the last.
Unique unique_from_sorted(const Tensor& x, const Tensor& order, const Tensor& starts, UniqueOutputs wants) {
  const int64_t n = starts.numel();
  const Tensor at = reshape(nonzero(starts), {-1});
  // Sorting is stable, so this is the first occurrence.
  const Tensor first = order.defined() ? index_select(order, 0, at) : at;
  Unique u;
  u.values = index_select(x, 0, first);
  if (wants.index) u.index = first;
  if (wants.inverse) {
    const Tensor value_index = sub(cumsum(starts, 0), 1);
    // inverse[order[i]] = value_index[i]
    u.inverse = order.defined() ? scatter(value_index, 0, order, value_index) : value_index;
  }
  if (wants.counts) {
    const Tensor end = full({1}, static_cast<double>(n), {.dtype = DType::kI64, .device = x.device()});
    u.counts = sub(narrow(cat({at, end}, 0), 0, 1, at.numel()), at);
  }
  return u;
}

// Returns, for each row, whether it differs from the row before; true for the first row.
Tensor differs_from_previous(const Tensor& rows) {
  const int64_t n = rows.shape()[0];
  const Tensor first = full({std::min<int64_t>(n, 1)}, 1, {.dtype = DType::kBool, .device = rows.device()});
  if (n < 2) return first;
  const Tensor differ = ne(narrow(rows, 0, 1, n - 1), narrow(rows, 0, 0, n - 1));
  return cat({first, rows.dim() == 1 ? differ : any(differ, {1})}, 0);
}

}  // namespace

void check_not_meta(const Tensor& x, std::string_view op) {
  if (x.device().type == DeviceType::kMeta)
    throw DeviceError(op, "the result's shape depends on values, which a meta tensor has not: x ",
                      describe(x));
}

std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t dim, bool descending) {
  return sort_and_truncate(x, length_of(x, dim, "sort"), dim, descending, "sort");
}

std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest) {
  const int64_t n = length_of(x, dim, "topk");
  if (k < 0 || k > n) throw ValueError("topk", "expected k from 0 to ", n, ", got ", k, ": x ", describe(x));
  if (x.dim() == 0 && k == 0) throw ValueError("topk", "expected k of 1 for a 0-dim tensor, got 0");
  return sort_and_truncate(x, k, dim, largest, "topk");
}

std::pair<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim, bool keepdim) {
  const int64_t n = length_of(x, dim, "kthvalue");
  if (k < 1 || k > n)
    throw ValueError("kthvalue", "expected k from 1 to ", n, ", got ", k, ": x ", describe(x));
  return select_elements(x, Selection::kKth, k - 1, dim, keepdim, "kthvalue");
}

std::pair<Tensor, Tensor> select_along(const Tensor& x, Selection what, int64_t dim, bool keepdim,
                                       std::string_view op) {
  if (length_of(x, dim, op) == 0)
    throw ShapeError(op, "has no value for a reduction over no elements: x ", describe(x));
  return select_elements(x, what, 0, dim, keepdim, op);
}

Unique unique(const Tensor& x, std::optional<int64_t> dim, bool consecutive, UniqueOutputs wants) {
  const char* op = consecutive ? "unique_consecutive" : "unique";
  const int d = dim ? wrap_dim(*dim, x.dim(), op) : 0;
  check_not_meta(x, op);
  if (!dim) {
    const Tensor flat = reshape(contiguous(x), {x.numel()});
    Tensor order, in_order = flat;
    if (!consecutive) std::tie(in_order, order) = sort(flat, 0, false);
    Unique u = unique_from_sorted(flat, order, differs_from_previous(in_order), wants);
    if (wants.inverse) u.inverse = reshape(u.inverse, x.shape());
    return u;
  }
  const Tensor moved = contiguous(movedim(x, d, 0));
  const int64_t n = moved.shape()[0];
  if (n > 0 && moved.numel() == 0)
    throw ShapeError(op, "slices along dim ", d, " have no elements to compare: x ", describe(x));
  const Tensor rows = reshape(moved, {n, n == 0 ? 1 : moved.numel() / n});
  Tensor order, in_order = rows;
  if (!consecutive) {
    order = empty({n}, {.dtype = DType::kI64, .device = x.device()});
    if (n > 0) sort_rows_kernel(order, rows);
    in_order = index_select(rows, 0, order);
  }
  Unique u = unique_from_sorted(moved, order, differs_from_previous(in_order), wants);
  u.values = contiguous(movedim(u.values, 0, d));
  return u;
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  const std::string_view op = "searchsorted";
  if (!are_compatible_devices(sorted.device(), values.device()))
    throw DeviceError(op, "sorted is on ", sorted.device(), " but values on ", values.device());
  if (sorted.dim() == 0) throw ShapeError(op, "expected at least 1 dim: sorted ", describe(sorted));
  if (sorted.dim() > 1) {
    Shape want = values.shape();
    if (want.size() == sorted.dim()) want[want.size() - 1] = sorted.shape().back();
    if (want != sorted.shape())
      throw ShapeError(op, "sorted has 1 dim or is like values but for the last: sorted ", describe(sorted),
                       ", values ", describe(values));
  }
  const DType common = promote(sorted.dtype(), values.dtype());
  const Tensor out = empty(values.shape(), {.dtype = DType::kI64, .device = values.device()});
  if (out.numel() == 0) return out;
  const int64_t n = sorted.shape().back(),
                slices = sorted.dim() == 1 ? 1 : values.numel() / values.shape().back();
  const auto as_rows = [slices](const Tensor& t, int64_t length) {
    return reshape(contiguous(t), {slices, length});
  };
  const int64_t m = values.numel() / slices;
  searchsorted_kernel(reshape(out, {slices, m}), as_rows(to(sorted, common), n),
                      as_rows(to(values, common), m), right);
  return out;
}

Tensor histc(const Tensor& x, int64_t bins, double low, double high) {
  check_floating("histc", "x", x);
  if (bins < 1) throw ValueError("histc", "expected at least 1 bin, got ", bins);
  if (!(low <= high) || !std::isfinite(low) || !std::isfinite(high))
    throw ValueError("histc", "expected finite bounds in order, got ", low, " and ", high);
  if (size_of(x.dtype()) == 2) return to(histc(to(x, DType::kF32), bins, low, high), x.dtype());
  const Tensor out = empty({bins}, {.dtype = x.dtype(), .device = x.device()});
  histc_kernel(out, contiguous(x), low, high);
  return out;
}

}  // namespace gradus::raw
