#include "gradus/autograd/ops/index.h"

#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/elementwise.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/autograd/record.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/ops/view.h"

namespace gradus {
namespace {

Tensor constant(const Tensor& like, const Shape& shape, double value) {
  Tensor c = empty(shape, {.dtype = like.dtype(), .device = like.device()});
  raw::fill_(c, value);
  return c;
}

// The corner of x that has `shape`.
Tensor corner(const Tensor& x, const Shape& shape) {
  Tensor y = x;
  for (int i = 0; i < std::min(x.dim(), shape.size()); ++i)
    if (shape[i] < y.shape()[i]) y = narrow(y, i, 0, shape[i]);
  return y;
}

// Advanced indexing turned into index_select: x's indexed dims are brought together, merged into one, and the
// indices into positions in it.
struct Advanced {
  Dims order;        // of x's dims, the indexed ones together
  int at = 0;        // where they begin
  Shape flat;        // x's shape permuted so, the indexed dims merged
  Tensor positions;  // in the merged dim; of the indices' common shape
  Shape result;      // of index()
};

Advanced plan_advanced(const Tensor& x, const std::vector<Tensor>& given) {
  // A mask becomes one index tensor per dim that it covers.
  std::vector<Tensor> indices;
  for (const Tensor& g : given) {
    if (g.defined() && g.dtype() == DType::kBool) {
      const int first = static_cast<int>(indices.size());
      for (int i = 0; i < g.dim(); ++i) {
        if (first + i >= x.dim() || g.shape()[i] != x.shape()[first + i])
          throw IndexError("index", "mask ", describe(g), " does not fit dims ", first,
                           " and following of x ", describe(x));
      }
      const Tensor where = raw::nonzero(g);
      for (int i = 0; i < g.dim(); ++i) indices.push_back(raw::select(where, 1, i));
    } else {
      indices.push_back(g);
    }
  }
  if (static_cast<int>(indices.size()) > x.dim())
    throw IndexError("index", indices.size(), " indices for ", x.dim(), " dims: x ", describe(x));
  indices.resize(x.dim());

  Advanced a;
  std::vector<Tensor> used;
  Dims sizes, indexed, before, after;
  bool together = true;
  for (int i = 0; i < x.dim(); ++i) {
    if (indices[i].defined()) {
      if (!used.empty() && !indices[i - 1].defined()) together = false;
      raw::check_index(indices[i], x, "index");
      used.push_back(indices[i]);
      indexed.push_back(i);
      sizes.push_back(x.shape()[i]);
    } else {
      (used.empty() ? before : after).push_back(i);
    }
  }
  if (used.empty()) throw ValueError("index", "expected at least one index tensor");
  a.at = together ? before.size() : 0;
  a.positions = raw::flat_index(used, sizes, static_cast<int>(indexed[0]));
  const auto append = [&](const Dims& dims) {
    for (int64_t d : dims)
      a.order.push_back(d), a.flat.push_back(x.shape()[d]), a.result.push_back(x.shape()[d]);
  };
  if (together) append(before);
  for (int64_t d : indexed) a.order.push_back(d);
  a.flat.push_back(sizes.product());
  for (int64_t n : a.positions.shape()) a.result.push_back(n);
  if (!together) append(before);
  append(after);
  return a;
}

}  // namespace

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  Tensor y = raw::index_select(x, dim, index);
  if (Recorder r{"index_select", x})
    r.record(y, wrt(x, [index = r.save(index), shape = x.shape(), dim](const Tensor& dy) {
               return index_add(constant(dy, shape, 0), dim, index.get(), dy);
             }));
  return y;
}

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  Tensor y = raw::index_add(x, dim, index, src);
  if (Recorder r{"index_add", x, src})
    r.record(y, wrt(x, [](const Tensor& dy) { return dy; }),
             wrt(src, [index = r.save(index), dim](const Tensor& dy) {
               return index_select(dy, dim, index.get());
             }));
  return y;
}

Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  Tensor y = raw::index_copy(x, dim, index, src);
  if (Recorder r{"index_copy", x, src})
    r.record(
        y,
        wrt(x, [index = r.save(index), dim, shape = src.shape()](
                   const Tensor& dy) { return index_copy(dy, dim, index.get(), constant(dy, shape, 0)); }),
        wrt(src,
            [index = r.save(index), dim](const Tensor& dy) { return index_select(dy, dim, index.get()); }));
  return y;
}

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index) {
  Tensor y = raw::gather(x, dim, index);
  if (Recorder r{"gather", x})
    r.record(y, wrt(x, [index = r.save(index), shape = x.shape(), dim](const Tensor& dy) {
               return gather_backward(dy, shape, dim, index.get());
             }));
  return y;
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, int64_t dim) {
  if (index.dim() != x.dim())
    throw ShapeError("take_along_dim", "index ", describe(index), " has not as many dims as x ", describe(x));
  const int d = wrap_dim(dim, x.dim(), "take_along_dim");
  Shape xs = x.shape(), is = index.shape();
  xs[d] = is[d] = 1;
  xs = is = broadcast_shapes(xs, is, "take_along_dim");
  xs[d] = x.shape()[d];
  is[d] = index.shape()[d];
  return gather(expand(x, xs), d, raw::expand(index, is));
}

Tensor gather_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index) {
  Tensor dx = raw::scatter_add(constant(dy, shape, 0), dim, index, dy);
  if (Recorder r{"gather_backward", dy})
    r.record(dx,
             wrt(dy, [index = r.save(index), dim](const Tensor& g) { return gather(g, dim, index.get()); }));
  return dx;
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const Tensor part = corner(src, index.shape());
  Tensor y = raw::scatter(x, dim, index, part);
  if (Recorder r{"scatter", x, part})
    r.record(
        y,
        wrt(x, [index = r.save(index), dim](const Tensor& dy) { return scatter(dy, dim, index.get(), 0.0); }),
        wrt(part, [index = r.save(index), dim](const Tensor& dy) { return gather(dy, dim, index.get()); }));
  return y;
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, double value) {
  return scatter(x, dim, index, constant(x, index.shape(), value));
}

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const Tensor part = corner(src, index.shape());
  Tensor y = raw::scatter_add(x, dim, index, part);
  if (Recorder r{"scatter_add", x, part})
    r.record(
        y, wrt(x, [](const Tensor& dy) { return dy; }),
        wrt(part, [index = r.save(index), dim](const Tensor& dy) { return gather(dy, dim, index.get()); }));
  return y;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  return masked_fill(x, mask, constant(x, {}, value));
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  if (mask.dtype() != DType::kBool)
    throw DTypeError("masked_fill", "expected a bool mask, given ", describe(mask));
  if (!(broadcast_shapes(x.shape(), mask.shape(), "masked_fill") == x.shape()))
    throw ShapeError("masked_fill", "mask ", describe(mask), " does not broadcast to x ", describe(x));
  return where(mask, to(value, x.dtype()), x);
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  if (mask.dtype() != DType::kBool)
    throw DTypeError("masked_select", "expected a bool mask, given ", describe(mask));
  const Shape s = broadcast_shapes(x.shape(), mask.shape(), "masked_select");
  const int64_t n = checked_numel(s, "masked_select");
  const Tensor at = raw::nonzero(raw::reshape(raw::expand(mask, s), {n}));
  return index_select(reshape(expand(x, s), {n}), 0, raw::reshape(at, {at.numel()}));
}

Tensor nonzero(const Tensor& x) { return raw::nonzero(x); }

Tensor index(const Tensor& x, const std::vector<Tensor>& indices) {
  const Advanced a = plan_advanced(x, indices);
  const Tensor flat = reshape(permute(x, a.order), a.flat);
  return reshape(index_select(flat, a.at, raw::reshape(a.positions, {a.positions.numel()})), a.result);
}

Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& v, bool accumulate) {
  const Advanced a = plan_advanced(x, indices);
  const Tensor moved = permute(x, a.order), flat = reshape(moved, a.flat);
  const Tensor positions = raw::reshape(a.positions, {a.positions.numel()});
  Shape slices = a.flat;
  slices[a.at] = a.positions.numel();
  const Tensor src = reshape(expand(to(v, x.dtype()), a.result), slices);
  const Tensor y =
      accumulate ? index_add(flat, a.at, positions, src) : index_copy(flat, a.at, positions, src);
  return permute(reshape(y, moved.shape()), raw::inverse_order(a.order));
}

}  // namespace gradus
