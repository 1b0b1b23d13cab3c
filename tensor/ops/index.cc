// Raw indexing ops: check shapes, dtypes and devices, copy layouts that kernels do not support, allocate the
// result and call the kernel of the device, which checks each index. Out-of-place ops copy x first.
// Reductions of 16-bit floats are computed in f32 and rounded once. Only nonzero, masked_select and one_hot
// without a number of classes wait for the device.
#include "gradus/tensor/ops/index.h"

#include <limits>

#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

// Returns x's shape as [outer, n, inner] around dim `dim`.
IndexedDim indexed_dim(const Tensor& x, int64_t dim, const char* op) {
  IndexedDim d;
  d.op = op;
  d.dim = wrap_dim(dim, std::max(x.dim(), 1), op);
  for (int i = 0; i < x.dim(); ++i) (i < d.dim ? d.outer : i == d.dim ? d.n : d.inner) *= x.shape()[i];
  return d;
}

Tensor as_indices(const Tensor& index) { return contiguous(to(index, DType::kI64)); }

// Returns x narrowed to `shape` from index 0 in all dims but `except`.
Tensor narrow_to(const Tensor& x, const Shape& shape, int except) {
  Tensor y = x;
  for (int i = 0; i < x.dim(); ++i)
    if (i != except && y.shape()[i] != shape[i]) y = narrow(y, i, 0, shape[i]);
  return y;
}

void check_pair(const Tensor& x, const Tensor& src, const char* op) {
  if (!are_compatible_devices(x.device(), src.device()))
    throw DeviceError(op, "x is on ", x.device(), " but src on ", src.device());
  check_same_dtype(op, "src", src, "x", x);
}

// Checks an index of gather or scatter: as many dims as x, and no larger than x in other dims than `dim`.
void check_fits(const Tensor& index, const Tensor& x, int dim, const char* name, const char* op) {
  bool fits = index.dim() == x.dim();
  for (int i = 0; fits && i < x.dim(); ++i) fits = i == dim || index.shape()[i] <= x.shape()[i];
  if (!fits)
    throw ShapeError(op, "index ", describe(index), " does not fit ", name, " outside of dim ", dim, ": ",
                     name, ' ', describe(x));
}

// Returns whether x is combined in f32 and rounded once, as 16-bit floats are.
bool accumulates_in_f32(const Tensor& x, WriteMode mode) {
  return mode != WriteMode::kAssign && is_floating(x.dtype()) && size_of(x.dtype()) == 2;
}

// Implements scatter, scatter_add and scatter_reduce. The kernel requires equal sizes outside of `dim`, so an
// index smaller than x is scattered into a narrowed copy.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, WriteMode mode,
               const char* op) {
  check_index(index, x, op);
  check_pair(x, src, op);
  if (accumulates_in_f32(x, mode))
    return to(scatter(to(x, DType::kF32), dim, index, to(src, DType::kF32), mode, op), x.dtype());
  const int d = wrap_dim(dim, std::max(x.dim(), 1), op);
  check_fits(index, x, d, "x", op);
  check_fits(index, src, -1, "src", op);
  const Tensor out = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  copy_(out, x);
  if (index.numel() == 0) return out;
  const Tensor part = narrow_to(out, index.shape(), d), dense = contiguous(part);
  scatter_kernel(dense, as_indices(index), contiguous(narrow_to(src, index.shape(), -1)),
                 indexed_dim(dense, d, op), mode);
  if (!dense.is_same(part)) copy_(part, dense);
  return out;
}

// Checks that src has the shape `shape` with index.numel() elements along `dim`, and that index has at most 1
// dim.
void check_slices(const Tensor& src, const Tensor& index, const Shape& shape, int dim, const char* op) {
  Shape want = shape;
  if (!want.empty()) want[dim] = index.numel();
  if (index.dim() > 1 || src.shape() != want)
    throw ShapeError(op, "src has shape ", src.shape(), " where index ", describe(index), " asks for ", want,
                     ": x has shape ", shape);
}

// Implements index_copy and index_add: returns x with the slices of src written along `dim`.
Tensor index_put(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, WriteMode mode,
                 const char* op) {
  check_index(index, x, op);
  check_pair(x, src, op);
  const IndexedDim d = indexed_dim(x, dim, op);
  check_slices(src, index, x.shape(), d.dim, op);
  if (accumulates_in_f32(x, mode))
    return to(index_put(to(x, DType::kF32), dim, index, to(src, DType::kF32), mode, op), x.dtype());
  const Tensor out = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  copy_(out, x);
  index_put_kernel(out, as_indices(index), contiguous(src), d, mode);
  return out;
}

}  // namespace

void check_index(const Tensor& index, const Tensor& x, const char* op) {
  if (index.dtype() != DType::kI64 && index.dtype() != DType::kI32)
    throw DTypeError(op, "expected i64 or i32 indices, got index ", describe(index),
                     conversion_hint("index", DType::kI64));
  if (!are_compatible_devices(index.device(), x.device()))
    throw DeviceError(op, "x is on ", x.device(), " but its indices on ", index.device());
}

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  check_index(index, x, "gather");
  const int d = wrap_dim(dim, std::max(x.dim(), 1), "gather");
  check_fits(index, x, d, "x", "gather");
  const Tensor out = empty(index.shape(), {.dtype = x.dtype(), .device = x.device()});
  const Tensor from = contiguous(narrow_to(x, index.shape(), d));
  gather_kernel(out, from, as_indices(index), indexed_dim(from, d, "gather"));
  return out;
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter(x, dim, index, src, WriteMode::kAssign, "scatter");
}

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter(x, dim, index, src, WriteMode::kAdd, "scatter_add");
}

Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, WriteMode mode,
                      bool include_self) {
  constexpr const char* kOp = "scatter_reduce";
  if (x.dtype() == DType::kBool) throw DTypeError(kOp, "is not defined for bool: x ", describe(x));
  if (include_self) return scatter(x, dim, index, src, mode, kOp);
  // The written elements start with the neutral element of the reduction.
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor start = empty(src.shape(), {.dtype = src.dtype(), .device = src.device()});
  if (is_floating(x.dtype()) || mode == WriteMode::kAdd || mode == WriteMode::kMultiply) {
    fill_(start, mode == WriteMode::kAdd        ? 0
                 : mode == WriteMode::kMultiply ? 1
                 : mode == WriteMode::kMax      ? -infinity
                                                : infinity);
    return scatter(scatter(x, dim, index, start, WriteMode::kAssign, kOp), dim, index, src, mode, kOp);
  }
  // Integers have no infinity: the written elements start with one of the values written to them.
  return scatter(scatter(x, dim, index, src, WriteMode::kAssign, kOp), dim, index, src, mode, kOp);
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index, const char* op) {
  check_index(index, x, op);
  if (index.dim() > 1)
    throw ShapeError(op, "expected a 1-dimensional index, got ", describe(index), ": x ", describe(x));
  const IndexedDim d = indexed_dim(x, dim, op);
  Shape s = x.shape();
  if (x.dim() > 0) s[d.dim] = index.numel();
  const Tensor out = empty(s, {.dtype = x.dtype(), .device = x.device()});
  index_select_kernel(out, contiguous(x), as_indices(index), d);
  return out;
}

Tensor index_select_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index,
                             int64_t skip, const char* op) {
  check_index(index, dy, op);
  const DType dtype = accumulates_in_f32(dy, WriteMode::kAdd) ? DType::kF32 : dy.dtype();
  const Tensor out = empty(shape, {.dtype = dtype, .device = dy.device()});
  IndexedDim d = indexed_dim(out, dim, op);
  d.skip = skip;
  check_slices(dy, index, shape, d.dim, op);
  fill_(out, 0);
  index_put_kernel(out, as_indices(index), contiguous(to(dy, dtype)), d, WriteMode::kAdd);
  return to(out, dy.dtype());
}

void index_copy_(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, const char* op) {
  check_index(index, x, op);
  check_pair(x, src, op);
  const IndexedDim d = indexed_dim(x, dim, op);
  check_slices(src, index, x.shape(), d.dim, op);
  if (!x.is_row_major())
    throw ShapeError(op, "expected a row-major tensor, call contiguous(): x ", describe(x));
  if (src.numel() == 0) return;
  index_put_kernel(x, as_indices(index), contiguous(src), d, WriteMode::kAssign);
  x.storage()->bump_version();
}

Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return index_put(x, dim, index, src, WriteMode::kAssign, "index_copy");
}

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return index_put(x, dim, index, src, WriteMode::kAdd, "index_add");
}

Tensor flat_index(const std::vector<Tensor>& indices, const Dims& sizes, int first_dim, const char* op) {
  Shape s;
  for (const Tensor& index : indices) {
    check_index(index, indices[0], op);
    s = broadcast_shapes(s, index.shape(), op);
  }
  const Tensor out = empty(s, {.dtype = DType::kI64, .device = indices[0].device()});
  fill_(out, 0);
  const Strides strides = row_major_strides(sizes);
  for (int i = 0; i < sizes.size(); ++i) {
    const Tensor index = contiguous(expand(to(indices[i], DType::kI64), s));
    flat_index_kernel(out, index, {.n = sizes[i], .dim = first_dim + i, .op = op}, strides[i]);
  }
  return out;
}

Tensor nonzero(const Tensor& x) {
  if (x.device().type == DeviceType::kMeta)
    throw DeviceError("nonzero", "the result's shape depends on values, which a meta tensor has not: x ",
                      describe(x));
  const Tensor c = contiguous(to(x, DType::kBool));
  const int64_t count = x.numel() == 0 ? 0 : sum(c).item<int64_t>();
  const Tensor out = empty({count, x.dim()}, {.dtype = DType::kI64, .device = x.device()});
  if (count > 0) nonzero_kernel(out, c);
  return out;
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  if (x.device().type == DeviceType::kMeta)
    throw DeviceError("masked_select",
                      "the result's shape depends on values, which a meta tensor has not: x ", describe(x));
  const Tensor m = contiguous(mask);
  return masked_select_into(x, m, {m.numel() == 0 ? 0 : sum(m).item<int64_t>()});
}

Tensor masked_select_into(const Tensor& x, const Tensor& mask, const Shape& shape) {
  const Tensor out = empty(shape, {.dtype = x.dtype(), .device = x.device()});
  if (out.numel() > 0) masked_select_kernel(out, contiguous(x), contiguous(mask));
  return out;
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src, const Shape& shape) {
  const Tensor out = empty(shape, {.dtype = src.dtype(), .device = src.device()});
  if (out.numel() > 0)
    masked_scatter_kernel(out, x.defined() ? contiguous(x) : x, contiguous(mask), contiguous(src));
  return out;
}

Tensor one_hot(const Tensor& index, int64_t classes, DType dtype) {
  check_index(index, index, "one_hot");
  if (classes == -1) {
    if (index.numel() == 0)
      throw ValueError("one_hot", "no index tells the number of classes: ", describe(index));
    if (index.device().type == DeviceType::kMeta)
      throw DeviceError("one_hot", "the number of classes depends on values, which a meta tensor has not: ",
                        describe(index));
    classes = Checked("one_hot", amax(to(index, DType::kI64)).item<int64_t>()) + 1;
  }
  if (classes < 1) throw ValueError("one_hot", "expected at least 1 class, got ", classes);
  Shape s = index.shape();
  s.push_back(classes);
  const Tensor out = empty(s, {.dtype = dtype, .device = index.device()});
  one_hot_kernel(out, as_indices(index));
  return out;
}

}  // namespace gradus::raw
