// Differentiable indexing by tensors: gather, scatter, index_select, masks, and advanced indexing. Each op is
// linear in its operands (but scatter_reduce), and its backward rule calls the transposed op: index_select
// and index_add, gather and scatter_add, masked_select and masked_scatter. So gradients of any order exist.
// The raw ops of gradus/tensor/ops/index.h compute and check indices. A negative `dim` counts from the end.
#include "gradus/autograd/ops/index.h"

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

// Returns a tensor of `shape` filled with `value`, of the dtype and on the device of `like`.
Tensor constant(const Tensor& like, const Shape& shape, Number value) {
  return full(shape, value, {.dtype = like.dtype(), .device = like.device()});
}

void check_mask(const Tensor& x, const Tensor& mask, const char* op) {
  check_bool(op, "mask", mask);
  if (mask.device() != x.device())
    throw DeviceError(op, "x is on ", x.device(), " but the mask on ", mask.device());
}

// Returns the leading elements of x in each dim: x[:shape[0], :shape[1], ...].
Tensor leading_part(const Tensor& x, const Shape& shape) {
  Tensor y = x;
  for (int i = 0; i < std::min(x.dim(), shape.size()); ++i)
    if (shape[i] < y.shape()[i]) y = narrow(y, i, 0, shape[i]);
  return y;
}

// Advanced indexing expressed by index_select: x's indexed dims are made adjacent and merged into one dim,
// and the indices are combined to positions in the merged dim.
struct Advanced {
  Dims order;        // permutation of x's dims that makes the indexed ones adjacent
  int at = 0;        // first indexed dim in that order
  Shape flat;        // x's shape in that order, the indexed dims merged
  Tensor positions;  // positions in the merged dim, of the indices' common shape
  Shape result;      // shape of the result of index()
};

// Plans x[source[0], source[1], ...] as in NumPy. An undefined entry, or a missing one at the end, selects
// the whole dim. A bool mask with d dims stands for d index tensors. Example: x [A, B, C, D] with indices of
// common shape [K] for dims 1 and 2 has order (0, 1, 2, 3), at 1, flat [A, B*C, D], result [A, K, D].
Advanced plan_advanced(const Tensor& x, const std::vector<Tensor>& source) {
  std::vector<Tensor> indices;
  for (const Tensor& g : source) {
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
  bool adjacent = true;
  for (int i = 0; i < x.dim(); ++i) {
    if (indices[i].defined()) {
      if (!used.empty() && !indices[i - 1].defined()) adjacent = false;
      raw::check_index(indices[i], x, "index");
      used.push_back(indices[i]);
      indexed.push_back(i);
      sizes.push_back(x.shape()[i]);
    } else {
      (used.empty() ? before : after).push_back(i);
    }
  }
  if (used.empty()) throw ValueError("index", "expected at least one index tensor");
  a.at = adjacent ? before.size() : 0;
  a.positions = raw::flat_index(used, sizes, static_cast<int>(indexed[0]));
  const auto append = [&](const Dims& dims) {
    for (int64_t d : dims)
      a.order.push_back(d), a.flat.push_back(x.shape()[d]), a.result.push_back(x.shape()[d]);
  };
  if (adjacent) append(before);
  for (int64_t d : indexed) a.order.push_back(d);
  a.flat.push_back(sizes.product());
  for (int64_t n : a.positions.shape()) a.result.push_back(n);
  if (!adjacent) append(before);
  append(after);
  return a;
}

}  // namespace

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  const OpCall call("index_select", {{"x", x}, {"index", index}});
  Tensor y = raw::index_select(x, dim, index);
  if (Recorder r{"index_select", x})
    r.record(y, wrt(x, [index = r.save(index), shape = x.shape(), dim](const Tensor& dy) {
               return index_select_backward(dy, shape, dim, index.get());
             }));
  return y;
}

Tensor index_select_backward(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& index) {
  const OpCall call("index_select_backward", {{"dy", dy}, {"index", index}});
  Tensor dx = raw::index_select_backward(dy, shape, dim, index);
  if (Recorder r{"index_select_backward", dy})
    r.record(dx, wrt(dy, [index = r.save(index), dim](const Tensor& g) {
               return index_select(g, dim, index.get());
             }));
  return dx;
}

Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, Number value) {
  const OpCall call("index_fill", {{"x", x}, {"index", index}});
  check_fits("index_fill", value, x.dtype());
  return index_fill(x, dim, index, constant(x, {}, value));
}

Tensor index_fill(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value) {
  const OpCall call("index_fill", {{"x", x}, {"index", index}, {"value", value}});
  constexpr const char* kOp = "index_fill";
  if (value.numel() != 1) throw ShapeError(kOp, "expected a value of one element, got ", describe(value));
  if (index.dim() > 1) throw ShapeError(kOp, "expected a 1-dimensional index, got ", describe(index));
  raw::check_index(index, x, kOp);
  autograd::check_same_device(kOp, "x", x, "value", value);
  const int d = wrap_dim(dim, x.dim(), kOp);
  const Tensor positions =
      raw::reshape(raw::flat_index({index}, {x.dim() > 0 ? x.shape()[d] : 1}, d, kOp), {index.numel()});
  Shape s = x.shape();
  if (x.dim() > 0) s[d] = index.numel();
  return index_copy(x, d, positions, expand(reshape(to(value, x.dtype()), {}), s));
}

namespace {

// Returns a copy of x in which the view part(x) is overwritten with src. `part` is a differentiable op that
// returns a view (select, slice, diagonal); src has the view's shape.
template <class Part> Tensor with_part(const char* op, const Tensor& x, const Tensor& src, Part part) {
  autograd::check_same_device(op, "x", x, "src", src);
  Tensor y = raw::clone(x);
  const Tensor target = part(y);
  if (target.shape() != src.shape())
    throw ShapeError(op, "the place has shape ", target.shape(), " but src is ", describe(src), ": x ",
                     describe(x));
  raw::copy_(target, src);
  if (Recorder r{op, x, src})
    r.record(y,
             wrt(x, [op, part, shape = src.shape()](
                        const Tensor& dy) { return with_part(op, dy, constant(dy, shape, 0), part); }),
             wrt(src, part));
  return y;
}

}  // namespace

Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index) {
  const OpCall call("select_scatter", {{"x", x}, {"src", src}});
  return with_part("select_scatter", x, src, [=](const Tensor& t) { return select(t, dim, index); });
}

Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t start, int64_t stop,
                     int64_t step) {
  const OpCall call("slice_scatter", {{"x", x}, {"src", src}});
  return with_part("slice_scatter", x, src,
                   [=](const Tensor& t) { return slice(t, dim, start, stop, step); });
}

Tensor diagonal_scatter(const Tensor& x, const Tensor& src, DiagonalOptions options) {
  const OpCall call("diagonal_scatter", {{"x", x}, {"src", src}});
  return with_part("diagonal_scatter", x, src, [=](const Tensor& t) { return diagonal(t, options); });
}

Tensor take(const Tensor& x, const Tensor& index) {
  const OpCall call("take", {{"x", x}, {"index", index}});
  raw::check_index(index, x, "take");
  const Tensor positions = raw::flat_index({index}, {x.numel()}, 0, "take");
  const Tensor y = index_select(reshape(x, {x.numel()}), 0, raw::reshape(positions, {positions.numel()}));
  return reshape(y, index.shape());
}

Tensor put(const Tensor& x, const Tensor& index, const Tensor& src, bool accumulate) {
  const OpCall call("put", {{"x", x}, {"index", index}, {"src", src}});
  if (autograd::Casting cast{"put", x, src}) return put(cast(x), index, cast(src), accumulate);
  raw::check_index(index, x, "put");
  if (index.numel() != src.numel())
    throw ShapeError("put", "index and src differ in their numbers of elements: index ", describe(index),
                     ", src ", describe(src));
  const int64_t n = x.numel(), k = src.numel();
  const Tensor positions = raw::reshape(raw::flat_index({index}, {n}, 0, "put"), {k});
  const Tensor flat = reshape(x, {n}), values = reshape(src, {k});
  return reshape(accumulate ? index_add(flat, 0, positions, values) : index_copy(flat, 0, positions, values),
                 x.shape());
}

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const OpCall call("index_add", {{"x", x}, {"index", index}, {"src", src}});
  if (autograd::Casting cast{"index_add", x, src}) return index_add(cast(x), dim, index, cast(src));
  Tensor y = raw::index_add(x, dim, index, src);
  if (Recorder r{"index_add", x, src})
    r.record(y, wrt(x, [](const Tensor& dy) { return dy; }),
             wrt(src, [index = r.save(index), dim](const Tensor& dy) {
               return index_select(dy, dim, index.get());
             }));
  return y;
}

Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const OpCall call("index_copy", {{"x", x}, {"index", index}, {"src", src}});
  if (autograd::Casting cast{"index_copy", x, src}) return index_copy(cast(x), dim, index, cast(src));
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
  const OpCall call("gather", {{"x", x}, {"index", index}});
  Tensor y = raw::gather(x, dim, index);
  if (Recorder r{"gather", x})
    r.record(y, wrt(x, [index = r.save(index), shape = x.shape(), dim](const Tensor& dy) {
               return gather_backward(dy, shape, dim, index.get());
             }));
  return y;
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, int64_t dim) {
  const OpCall call("take_along_dim", {{"x", x}, {"index", index}});
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
  const OpCall call("gather_backward", {{"dy", dy}, {"index", index}});
  Tensor dx = raw::scatter_add(constant(dy, shape, 0), dim, index, dy);
  if (Recorder r{"gather_backward", dy})
    r.record(dx,
             wrt(dy, [index = r.save(index), dim](const Tensor& g) { return gather(g, dim, index.get()); }));
  return dx;
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const OpCall call("scatter", {{"x", x}, {"index", index}, {"src", src}});
  if (autograd::Casting cast{"scatter", x, src}) return scatter(cast(x), dim, index, cast(src));
  const Tensor part = leading_part(src, index.shape());
  Tensor y = raw::scatter(x, dim, index, part);
  if (Recorder r{"scatter", x, part})
    r.record(
        y,
        wrt(x, [index = r.save(index), dim](const Tensor& dy) { return scatter(dy, dim, index.get(), 0.0); }),
        wrt(part, [index = r.save(index), dim](const Tensor& dy) { return gather(dy, dim, index.get()); }));
  return y;
}

Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, Number value) {
  const OpCall call("scatter", {{"x", x}, {"index", index}});
  check_fits("scatter", value, x.dtype());
  return scatter(x, dim, index, constant(x, index.shape(), value));
}

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  const OpCall call("scatter_add", {{"x", x}, {"index", index}, {"src", src}});
  if (autograd::Casting cast{"scatter_add", x, src}) return scatter_add(cast(x), dim, index, cast(src));
  const Tensor part = leading_part(src, index.shape());
  Tensor y = raw::scatter_add(x, dim, index, part);
  if (Recorder r{"scatter_add", x, part})
    r.record(
        y, wrt(x, [](const Tensor& dy) { return dy; }),
        wrt(part, [index = r.save(index), dim](const Tensor& dy) { return gather(dy, dim, index.get()); }));
  return y;
}

namespace {

// The raw op accumulates a mean as a sum; scatter_reduce then divides it by the counts.
raw::WriteMode combination(ScatterReduce reduce) {
  switch (reduce) {
    case ScatterReduce::kProd:
      return raw::WriteMode::kMultiply;
    case ScatterReduce::kAmax:
      return raw::WriteMode::kMax;
    case ScatterReduce::kAmin:
      return raw::WriteMode::kMin;
    default:
      return raw::WriteMode::kAdd;
  }
}

// The arguments and result of a scatter_reduce, for its gradients.
struct Scattered {
  Tensor x, src, y, index;
  int64_t dim;
  ScatterReduceOptions options;

  Tensor zeros_like(const Tensor& t) const { return constant(t, t.shape(), 0); }
  // Returns the element of t at the destination of each element of src.
  Tensor read(const Tensor& t) const { return gather(t, dim, index); }
  // Returns t, with zeros where x's elements are excluded (include_self is false).
  Tensor included(const Tensor& t) const { return options.include_self ? t : scatter(t, dim, index, 0.0); }
  // Returns the number of elements combined at each destination, at least 1.
  Tensor counts() const {
    const auto ones = [](const Tensor& t) {
      return constant(is_floating(t.dtype()) ? t : raw::to(t, DType::kF64), t.shape(), 1);
    };
    return maximum(raw::scatter_add(included(ones(x)), dim, index, ones(src)), 1);
  }
  Tensor product(const Tensor& a, const Tensor& b) const {
    return scatter_reduce(a, dim, index, b, ScatterReduce::kProd, options);
  }
};

// The functions *_gradients return the gradients of x and src for the gradient dy of the result y.
std::vector<Tensor> sum_gradients(const Scattered& s, const Tensor& dy) {
  return {s.included(dy), s.read(dy)};
}

// Divides dy evenly among the elements of x and src that equal the extremum y.
std::vector<Tensor> extremum_gradients(const Scattered& s, const Tensor& dy) {
  const Tensor x_attains = s.included(to(eq(s.x, s.y), dy.dtype())),
               src_attains = to(eq(s.src, s.read(s.y)), dy.dtype());
  const Tensor share = dy / maximum(scatter_add(x_attains, s.dim, s.index, src_attains), 1);
  return {x_attains * share, src_attains * s.read(share)};
}

// Returns t with a rule that throws when t is differentiated.
Tensor not_differentiable(const Tensor& t) {
  return autograd::record_unary("scatter_reduce", t, detach(t), [](const Tensor&) -> Tensor {
    throw StateError("scatter_reduce",
                     "prod has no second order where several zeros of src meet at one place");
  });
}

// Returns the gradients of the product y: dy * y / v for each factor v. If v = 0 is the only zero of its
// destination, y / v is computed as the product with v replaced by 1; if there are several zeros in src,
// their gradients are 0. The latter has no correct second derivative, so a second differentiation throws
// (detected on CPUs alone, since the check waits for the device).
std::vector<Tensor> product_gradients(const Scattered& s, const Tensor& dy) {
  const Tensor x1 = masked_fill(s.x, eq(s.x, 0), 1), src_zero = eq(s.src, 0);
  const Tensor dx = s.included(dy * s.product(x1, s.src) / x1);
  const Tensor zeros = s.read(scatter_add(s.zeros_like(s.x), s.dim, s.index, to(src_zero, s.x.dtype())));
  const Tensor only_zero = logical_and(src_zero, eq(zeros, 1));
  const Tensor without = s.product(s.x, masked_fill(s.src, only_zero, 1));
  const Tensor dsrc =
      where(only_zero, s.read(dy * without), s.read(dy * s.y) / masked_fill(s.src, src_zero, 1));
  const bool has_no_second_order = autograd::is_tracked(dsrc) && dy.device().type == DeviceType::kCPU &&
                                   raw::any(raw::logical_and(src_zero, raw::gt(zeros, 1))).item<bool>();
  return {dx, has_no_second_order ? not_differentiable(dsrc) : dsrc};
}

}  // namespace

Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                      ScatterReduce reduce, ScatterReduceOptions options) {
  const OpCall call("scatter_reduce", {{"x", x}, {"index", index}, {"src", source}});
  if (autograd::Casting cast{"scatter_reduce", x, source})
    return scatter_reduce(cast(x), dim, index, cast(source), reduce, options);
  if (x.dtype() == source.dtype() && is_floating(x.dtype()) && size_of(x.dtype()) == 2)  // rounded once
    return to(scatter_reduce(to(x, DType::kF32), dim, index, to(source, DType::kF32), reduce, options),
              x.dtype());
  const Tensor src = leading_part(source, index.shape());
  Tensor y = raw::scatter_reduce(x, dim, index, src, combination(reduce), options.include_self);
  if (reduce == ScatterReduce::kMean) {
    const Tensor n = Scattered{x, src, y, index, dim, options}.counts();
    y = is_floating(x.dtype())
            ? raw::to(raw::div(y, n), x.dtype())
            : raw::to(raw::unary<functors::Floor>(raw::div(raw::to(y, DType::kF64), n)), x.dtype());
  }
  if (Recorder r{"scatter_reduce", x, src})
    r.record_joint({&y, 1}, {x, src},
                   [x = r.save(x), src = r.save(src), y = r.save_output(y), index = r.save(index), dim,
                    options, reduce](std::vector<Tensor> dys, autograd::Needs) -> std::vector<Tensor> {
                     const Scattered s{x.get(), src.get(), y.get(), index.get(), dim, options};
                     if (reduce == ScatterReduce::kMean) return sum_gradients(s, dys[0] / s.counts());
                     if (reduce == ScatterReduce::kSum) return sum_gradients(s, dys[0]);
                     return reduce == ScatterReduce::kProd ? product_gradients(s, dys[0])
                                                           : extremum_gradients(s, dys[0]);
                   });
  return y;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value) {
  const OpCall call("masked_fill", {{"x", x}, {"mask", mask}});
  check_fits("masked_fill", value, x.dtype());
  return masked_fill(x, mask, constant(x, {}, value));
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value) {
  const OpCall call("masked_fill", {{"x", x}, {"mask", mask}, {"value", value}});
  check_bool("masked_fill", "mask", mask);
  if (!(broadcast_shapes(x.shape(), mask.shape(), "masked_fill") == x.shape()))
    throw ShapeError("masked_fill", "mask ", describe(mask), " does not broadcast to x ", describe(x));
  return where(mask, to(value, x.dtype()), x);
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  const OpCall call("masked_select", {{"x", x}, {"mask", mask}});
  check_mask(x, mask, "masked_select");
  const Shape s = broadcast_shapes(x.shape(), mask.shape(), "masked_select");
  const Tensor full = raw::contiguous(raw::expand(mask, s));
  Tensor y = raw::masked_select(raw::expand(x, s), full);
  if (Recorder r{"masked_select", x})
    r.record(y, wrt(x, [mask = r.save(full)](const Tensor& dy) {
               return masked_select_backward(dy, mask.get());
             }));
  return y;
}

Tensor masked_select_backward(const Tensor& dy, const Tensor& mask) {
  const OpCall call("masked_select_backward", {{"dy", dy}, {"mask", mask}});
  check_mask(dy, mask, "masked_select_backward");
  Tensor dx = raw::masked_scatter({}, mask, dy, mask.shape());
  if (Recorder r{"masked_select_backward", dy})
    r.record(dx, wrt(dy, [mask = r.save(mask), shape = dy.shape()](const Tensor& g) {
               return masked_scatter_backward(g, mask.get(), shape);
             }));
  return dx;
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& src) {
  const OpCall call("masked_scatter", {{"x", x}, {"mask", mask}, {"src", src}});
  if (autograd::Casting cast{"masked_scatter", x, src}) return masked_scatter(cast(x), mask, cast(src));
  constexpr const char* kOp = "masked_scatter";
  check_mask(x, mask, kOp);
  check_same_dtype(kOp, "src", src, "x", x);
  autograd::check_same_device(kOp, "x", x, "src", src);
  const Shape s = broadcast_shapes(x.shape(), mask.shape(), kOp);
  const Tensor full = raw::contiguous(raw::expand(mask, s));
  Tensor y = raw::masked_scatter(raw::expand(x, s), full, src, s);
  if (Recorder r{kOp, x, src})
    r.record(y, wrt(x, [mask = r.save(full)](const Tensor& dy) { return masked_fill(dy, mask.get(), 0.0); }),
             wrt(src, [mask = r.save(full), shape = src.shape()](const Tensor& dy) {
               return masked_scatter_backward(dy, mask.get(), shape);
             }));
  return y;
}

Tensor masked_scatter_backward(const Tensor& dy, const Tensor& mask, const Shape& shape) {
  const OpCall call("masked_scatter_backward", {{"dy", dy}, {"mask", mask}});
  check_mask(dy, mask, "masked_scatter_backward");
  if (dy.shape() != mask.shape())
    throw ShapeError("masked_scatter_backward", "mask ", describe(mask), " has not the shape of dy ",
                     describe(dy));
  Tensor dx = raw::masked_select_into(dy, mask, shape);
  if (Recorder r{"masked_scatter_backward", dy})
    r.record(dx, wrt(dy, [mask = r.save(mask)](const Tensor& g) {
               return masked_select_backward(g, mask.get());
             }));
  return dx;
}

Tensor nonzero(const Tensor& x) {
  const OpCall call("nonzero", {{"x", x}});
  return raw::nonzero(x);
}
Tensor argwhere(const Tensor& x) {
  const OpCall call("argwhere", {{"x", x}});
  return raw::nonzero(x);
}

// Gradients of index and index_put come from the differentiable ops that they consist of.
Tensor index(const Tensor& x, const std::vector<Tensor>& indices) {
  const OpCall call("index", {{"x", x}});
  const Advanced a = plan_advanced(x, indices);
  const Tensor flat = reshape(permute(x, a.order), a.flat);
  return reshape(index_select(flat, a.at, raw::reshape(a.positions, {a.positions.numel()})), a.result);
}

Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& v, bool accumulate) {
  const OpCall call("index_put", {{"x", x}, {"v", v}});
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
