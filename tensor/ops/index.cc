#include "gradus/tensor/ops/index.h"

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"

namespace gradus::raw {
namespace {

IndexedDim indexed_dim(const Tensor& x, int64_t dim, std::string_view op) {
  IndexedDim d;
  d.dim = wrap_dim(dim, std::max(x.dim(), 1), op);
  for (int i = 0; i < x.dim(); ++i) (i < d.dim ? d.outer : i == d.dim ? d.n : d.inner) *= x.shape()[i];
  return d;
}

Tensor as_indices(const Tensor& index) { return contiguous(to(index, DType::kI64)); }

// The corner of x that has `shape`, but for dimension `except`.
Tensor corner(const Tensor& x, const Shape& shape, int except) {
  Tensor y = x;
  for (int i = 0; i < x.dim(); ++i)
    if (i != except && y.shape()[i] != shape[i]) y = narrow(y, i, 0, shape[i]);
  return y;
}

void check_pair(const Tensor& x, const Tensor& src, std::string_view op) {
  if (x.device() != src.device()) throw DeviceError(op, "x is on ", x.device(), " but src on ", src.device());
  if (x.dtype() != src.dtype())
    throw DTypeError(op, "x is ", name_of(x.dtype()), " but src is ", name_of(src.dtype()), ": src ",
                     describe(src));
}

// gather's and scatter's rule for index: as many dims as `x`, no larger outside of `dim`.
void check_fits(const Tensor& index, const Tensor& x, int dim, std::string_view name, std::string_view op) {
  bool fits = index.dim() == x.dim();
  for (int i = 0; fits && i < x.dim(); ++i) fits = i == dim || index.shape()[i] <= x.shape()[i];
  if (!fits)
    throw ShapeError(op, "index ", describe(index), " does not fit ", name, " outside of dim ", dim, ": ",
                     name, ' ', describe(x));
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, bool add,
               std::string_view op) {
  check_index(index, x, op);
  check_pair(x, src, op);
  const int d = wrap_dim(dim, std::max(x.dim(), 1), op);
  check_fits(index, x, d, "x", op);
  check_fits(index, src, -1, "src", op);
  const Tensor out = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  copy_(out, x);
  if (index.numel() == 0) return out;
  const Tensor part = corner(out, index.shape(), d), dense = contiguous(part);
  scatter_kernel(dense, as_indices(index), contiguous(corner(src, index.shape(), -1)),
                 indexed_dim(dense, d, op), add);
  if (!dense.is_same(part)) copy_(part, dense);
  return out;
}

Tensor index_put(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, bool add,
                 std::string_view op) {
  check_index(index, x, op);
  check_pair(x, src, op);
  const IndexedDim d = indexed_dim(x, dim, op);
  Shape want = x.shape();
  if (x.dim() > 0) want[d.dim] = index.numel();
  if (index.dim() > 1 || src.shape() != want)
    throw ShapeError(op, "src has shape ", src.shape(), " where index ", describe(index), " asks for ", want,
                     ": x ", describe(x));
  const Tensor out = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  copy_(out, x);
  index_put_kernel(out, as_indices(index), contiguous(src), d, add);
  return out;
}

}  // namespace

void check_index(const Tensor& index, const Tensor& x, std::string_view op) {
  if (index.dtype() != DType::kI64 && index.dtype() != DType::kI32)
    throw DTypeError(op, "expected i64 or i32 indices, given ", describe(index));
  if (index.device() != x.device())
    throw DeviceError(op, "x is on ", x.device(), " but its indices on ", index.device());
}

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  check_index(index, x, "gather");
  const int d = wrap_dim(dim, std::max(x.dim(), 1), "gather");
  check_fits(index, x, d, "x", "gather");
  const Tensor out = empty(index.shape(), {.dtype = x.dtype(), .device = x.device()});
  const Tensor from = contiguous(corner(x, index.shape(), d));
  gather_kernel(out, from, as_indices(index), indexed_dim(from, d, "gather"));
  return out;
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter(x, dim, index, src, false, "scatter");
}

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return scatter(x, dim, index, src, true, "scatter_add");
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  check_index(index, x, "index_select");
  if (index.dim() > 1)
    throw ShapeError("index_select", "expected a 1-dimensional index, given ", describe(index), ": x ",
                     describe(x));
  const IndexedDim d = indexed_dim(x, dim, "index_select");
  Shape s = x.shape();
  if (x.dim() > 0) s[d.dim] = index.numel();
  const Tensor out = empty(s, {.dtype = x.dtype(), .device = x.device()});
  index_select_kernel(out, contiguous(x), as_indices(index), d);
  return out;
}

Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return index_put(x, dim, index, src, false, "index_copy");
}

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return index_put(x, dim, index, src, true, "index_add");
}

Tensor flat_index(const std::vector<Tensor>& indices, const Dims& sizes, int first_dim) {
  Shape s;
  for (const Tensor& index : indices) {
    check_index(index, indices[0], "index");
    s = broadcast_shapes(s, index.shape(), "index");
  }
  const Tensor out = empty(s, {.dtype = DType::kI64, .device = indices[0].device()});
  fill_(out, 0);
  const Strides strides = row_major_strides(sizes);
  for (int i = 0; i < sizes.size(); ++i) {
    const Tensor index = contiguous(expand(to(indices[i], DType::kI64), s));
    flat_index_kernel(out, index, sizes[i], strides[i], first_dim + i);
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

Tensor one_hot(const Tensor& index, int64_t classes, DType dtype) {
  check_index(index, index, "one_hot");
  if (classes < 1) throw ValueError("one_hot", "expected at least 1 class, given ", classes);
  Shape s = index.shape();
  s.push_back(classes);
  const Tensor out = empty(s, {.dtype = dtype, .device = index.device()});
  one_hot_kernel(out, as_indices(index));
  return out;
}

}  // namespace gradus::raw
