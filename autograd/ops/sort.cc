// Differentiable sort, topk, kthvalue, median and mode, and the ops without gradients: argsort, unique,
// histc, searchsorted and isin. The ops of gradus/tensor/ops/sort.h compute the results and check dims and
// dtypes; the functions here record the gradient, which scatters dy to the selected positions. bincount is a
// scatter_add of the weights, isin a binary search in the sorted `test`.
#include "gradus/autograd/ops/sort.h"

#include <limits>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/sort.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

// Records an op whose `result` (values, i64 positions) selects elements of x along `dim`. `dropped`: the
// result lacks that dim (keepdim is false).
ValuesAndIndices record_selection(const char* op, const Tensor& x, std::pair<Tensor, Tensor> result,
                                  int64_t dim, bool dropped = false) {
  auto& [values, indices] = result;
  if (Recorder r{op, x})
    r.record(values, wrt(x, [indices = r.save(indices), shape = x.shape(), dim, dropped](const Tensor& dy) {
               if (shape.empty()) return dy;
               const int d = wrap_dim(dim, shape.size(), "sort");
               const Tensor at = indices.get();
               return gather_backward(dropped ? unsqueeze(dy, d) : dy, shape, d,
                                      dropped ? unsqueeze(at, d) : at);
             }));
  return {std::move(values), std::move(indices)};
}

// median, nanmedian and mode along a dim.
ValuesAndIndices select_along(const char* op, const Tensor& x, raw::Selection what, const DimOptions& o) {
  const OpCall call(op, {{"x", x}});
  return record_selection(op, x, raw::select_along(x, what, o.dim, o.keepdim, op), o.dim, !o.keepdim);
}

// unique, and with `consecutive` unique_consecutive.
template <class O> UniqueResult find_unique(const char* op, const Tensor& x, const O& o, bool consecutive) {
  const OpCall call(op, {{"x", x}});
  raw::Unique u = raw::unique(x, o.dim, consecutive, {o.return_inverse, o.return_counts, o.return_index});
  return {std::move(u.values), std::move(u.inverse), std::move(u.counts), std::move(u.index)};
}

// Returns the median of all elements, []; NaN for a floating-point x without elements.
// Grad: dy divided evenly among the elements that equal the median.
Tensor median_of_all(const char* op, const Tensor& x, raw::Selection what) {
  const OpCall call(op, {{"x", x}});
  if (x.numel() == 0 && is_floating(x.dtype())) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return to(reshape(sum(x) + nan, {}), x.dtype());  // autocast sums in f32
  }
  const Tensor flat = raw::reshape(detach(x), {x.numel()});
  Tensor y = raw::select_along(flat, what, 0, false, op).first;
  if (Recorder r{op, x})
    r.record(y, wrt(x, [x = r.save(x), y = r.save_output(y)](const Tensor& dy) {
               // If the median is NaN, the NaN elements of x get the gradient.
               const Tensor equals_median = raw::logical_or(
                   raw::eq(x.get(), y.get()), raw::logical_and(raw::unary<functors::IsNaN>(x.get()),
                                                               raw::unary<functors::IsNaN>(y.get())));
               const Tensor share = raw::to(equals_median, dy.dtype());
               return share * (dy / sum(share));
             }));
  return y;
}

}  // namespace

ValuesAndIndices sort(const Tensor& x, const SortOptions& options) {
  const OpCall call("sort", {{"x", x}});
  return record_selection("sort", x, raw::sort(x, options.dim, options.descending), options.dim);
}
Tensor argsort(const Tensor& x, const SortOptions& options) {
  const OpCall call("argsort", {{"x", x}});
  return raw::sort(x, options.dim, options.descending).second;
}

ValuesAndIndices topk(const Tensor& x, int64_t k, const TopkOptions& options) {
  const OpCall call("topk", {{"x", x}});
  return record_selection("topk", x, raw::topk(x, k, options.dim, options.largest), options.dim);
}

ValuesAndIndices kthvalue(const Tensor& x, int64_t k, const DimOptions& options) {
  const OpCall call("kthvalue", {{"x", x}});
  return record_selection("kthvalue", x, raw::kthvalue(x, k, options.dim, options.keepdim), options.dim,
                          !options.keepdim);
}

Tensor median(const Tensor& x) { return median_of_all("median", x, raw::Selection::kMedian); }
Tensor nanmedian(const Tensor& x) { return median_of_all("nanmedian", x, raw::Selection::kNanMedian); }

ValuesAndIndices median(const Tensor& x, const DimOptions& options) {
  return select_along("median", x, raw::Selection::kMedian, options);
}
ValuesAndIndices nanmedian(const Tensor& x, const DimOptions& options) {
  return select_along("nanmedian", x, raw::Selection::kNanMedian, options);
}
ValuesAndIndices mode(const Tensor& x, const DimOptions& options) {
  return select_along("mode", x, raw::Selection::kMode, options);
}

UniqueResult unique(const Tensor& x, const UniqueOptions& options) {
  return find_unique("unique", x, options, false);
}
UniqueResult unique_consecutive(const Tensor& x, const UniqueConsecutiveOptions& options) {
  return find_unique("unique_consecutive", x, options, true);
}

Tensor bincount(const Tensor& x, const BincountOptions& options) {
  const OpCall call("bincount", {{"x", x}});
  check_integers("bincount", "numbers", "x", x);
  if (x.dim() != 1) throw ShapeError("bincount", "expected 1 dim: x ", describe(x));
  if (options.minlength < 0)
    throw ValueError("bincount", "expected minlength of at least 0, got ", options.minlength);
  raw::check_not_meta(x, "bincount");
  Tensor w = options.weights;
  if (w.defined()) {
    autograd::check_same_device("bincount", "x", x, "weights", w);
    if (w.shape() != x.shape())
      throw ShapeError("bincount", "weights ", describe(w), " do not match x ", describe(x));
    if (!is_floating(w.dtype())) w = to(w, DType::kF64);
  } else {
    w = full(x.shape(), 1, {.dtype = DType::kI64, .device = x.device()});
  }
  int64_t length = options.minlength;
  if (x.numel() > 0) {
    const int64_t least = raw::amin(x).item<int64_t>();
    if (least < 0) throw ValueError("bincount", "expected no negative numbers, found ", least);
    length = std::max<int64_t>(length, Checked("bincount", raw::amax(x).item<int64_t>()) + 1);
  }
  const Tensor zero = full({length}, 0, {.dtype = w.dtype(), .device = x.device()});
  return x.numel() == 0 ? zero : scatter_add(zero, 0, raw::to(x, DType::kI64), w);
}

Tensor histc(const Tensor& x, const HistcOptions& options) {
  const OpCall call("histc", {{"x", x}});
  return raw::histc(x, options.bins, options.min, options.max);
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, const SearchOptions& options) {
  const OpCall call("searchsorted", {{"sorted", sorted}, {"values", values}});
  const Tensor y = raw::searchsorted(sorted, values, options.right);
  return options.out_int32 ? raw::to(y, DType::kI32) : y;
}
Tensor bucketize(const Tensor& values, const Tensor& boundaries, const SearchOptions& options) {
  const OpCall call("bucketize", {{"values", values}, {"boundaries", boundaries}});
  if (boundaries.dim() != 1)
    throw ShapeError("bucketize", "expected 1 dim: boundaries ", describe(boundaries));
  return searchsorted(boundaries, values, options);
}

Tensor isin(const Tensor& x, const Tensor& test, const IsinOptions& options) {
  const OpCall call("isin", {{"x", x}, {"test", test}});
  autograd::check_same_device("isin", "x", x, "test", test);
  if (test.numel() == 0) return full_like(raw::to(detach(x), DType::kBool), options.invert);
  const DType common = promote(x.dtype(), test.dtype());
  const Tensor sought = raw::to(x, common);
  const Tensor sorted_test = raw::sort(raw::reshape(raw::to(test, common), {test.numel()}), 0, false).first;
  // Position of the first element that is not smaller; the last position if there is none.
  const Tensor at = raw::minimum(raw::searchsorted(sorted_test, sought, false), test.numel() - 1);
  const Tensor found =
      raw::reshape(raw::index_select(sorted_test, 0, raw::reshape(at, {at.numel()})), x.shape());
  return options.invert ? raw::ne(found, sought) : raw::eq(found, sought);
}

}  // namespace gradus
