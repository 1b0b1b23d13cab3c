// Views, and their backward rules: dy is reshaped or permuted back to x's shape, summed over expanded dims, or
// copied or (overlapping windows) added into a tensor of zeros of x's shape. Results and most errors are those of
// the raw views (tensor/ops/view.h).
#include "gradus/autograd/ops/view.h"

#include "gradus/autograd/graph/record.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arrange.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"

namespace gradus {
namespace {

// Records y, which has x's elements in the same order and another shape. The gradient of x is dy with x's shape.
Tensor record_reshape(const char* op, const Tensor& x, Tensor y) {
  if (Recorder r{op, x})
    r.record(y, wrt(x, [shape = x.shape()](const Tensor& dy) { return reshape(dy, shape); }));
  return y;
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  const OpCall call("reshape", {{"x", x}});
  return record_reshape("reshape", x, raw::reshape(x, shape));
}
Tensor view(const Tensor& x, const Shape& shape) {
  const OpCall call("view", {{"x", x}});
  return record_reshape("view", x, raw::view(x, shape));
}
Tensor reshape_as(const Tensor& x, const Tensor& other) {
  const OpCall call("reshape_as", {{"x", x}, {"other", other}});
  return reshape(x, other.shape());
}
Tensor view_as(const Tensor& x, const Tensor& other) {
  const OpCall call("view_as", {{"x", x}, {"other", other}});
  return view(x, other.shape());
}

Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes) {
  const OpCall call("unflatten", {{"x", x}});
  if (x.dim() == 0) throw ShapeError("unflatten", "x has no dims: x ", describe(x));
  const int d = wrap_dim(dim, x.dim(), "unflatten");
  const int64_t n = x.size(d);
  Shape split_sizes = sizes;
  int64_t known = 1;
  int inferred = -1;
  bool fits = !sizes.empty();
  for (int i = 0; i < split_sizes.size(); ++i) {
    if (split_sizes[i] == -1 && inferred < 0)
      inferred = i;
    else
      fits = fits && split_sizes[i] >= 0,
      known = Checked("unflatten", known) * std::max<int64_t>(split_sizes[i], 0);
  }
  if (fits && inferred >= 0) fits = known > 0 && n % known == 0, split_sizes[inferred] = fits ? n / known : 0;
  if (!fits || (inferred < 0 ? known : n) != n)
    throw ShapeError("unflatten", "sizes ", sizes, " do not make up dim ", d, " of size ", n, ": x ",
                     describe(x));
  Shape s;
  for (int i = 0; i < x.dim(); ++i) {
    if (i != d)
      s.push_back(x.shape()[i]);
    else
      for (int64_t size : split_sizes) s.push_back(size);
  }
  return record_reshape("unflatten", x, raw::reshape(x, s));
}

Tensor flatten(const Tensor& x, int64_t start, int64_t end) {
  const OpCall call("flatten", {{"x", x}});
  return record_reshape("flatten", x, raw::flatten(x, start, end));
}
Tensor squeeze(const Tensor& x) {
  const OpCall call("squeeze", {{"x", x}});
  return record_reshape("squeeze", x, raw::squeeze(x));
}
Tensor squeeze(const Tensor& x, int64_t dim) {
  const OpCall call("squeeze", {{"x", x}});
  return record_reshape("squeeze", x, raw::squeeze(x, dim));
}
Tensor squeeze(const Tensor& x, const Dims& dims) {
  const OpCall call("squeeze", {{"x", x}});
  return record_reshape("squeeze", x, raw::squeeze(x, dims));
}
Tensor unsqueeze(const Tensor& x, int64_t dim) {
  const OpCall call("unsqueeze", {{"x", x}});
  return record_reshape("unsqueeze", x, raw::unsqueeze(x, dim));
}

Tensor permute(const Tensor& x, const Dims& order) {
  const OpCall call("permute", {{"x", x}});
  Tensor y = raw::permute(x, order);
  if (Recorder r{"permute", x})
    r.record(y, wrt(x, [back = raw::inverse_order(order)](const Tensor& dy) { return permute(dy, back); }));
  return y;
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  const OpCall call("transpose", {{"x", x}});
  return autograd::record_unary("transpose", x, raw::transpose(x, dim0, dim1),
                                [dim0, dim1](const Tensor& dy) { return transpose(dy, dim0, dim1); });
}

Tensor swapaxes(const Tensor& x, int64_t dim0, int64_t dim1) {
  const OpCall call("swapaxes", {{"x", x}});
  return transpose(x, dim0, dim1);
}
Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1) {
  const OpCall call("swapdims", {{"x", x}});
  return transpose(x, dim0, dim1);
}

Tensor t(const Tensor& x) {
  const OpCall call("t", {{"x", x}});
  if (x.dim() > 2) throw ShapeError("t", "expected at most 2 dims, call transpose(): x ", describe(x));
  return x.dim() < 2 ? x : transpose(x, 0, 1);
}

Tensor movedim(const Tensor& x, int64_t from, int64_t to) {
  const OpCall call("movedim", {{"x", x}});
  return autograd::record_unary("movedim", x, raw::movedim(x, from, to),
                                [from, to](const Tensor& dy) { return movedim(dy, to, from); });
}

Tensor movedim(const Tensor& x, const Dims& from, const Dims& to) {
  const OpCall call("movedim", {{"x", x}});
  return permute(x, raw::moved_order(x, from, to));
}

Tensor moveaxis(const Tensor& x, int64_t from, int64_t to) {
  const OpCall call("moveaxis", {{"x", x}});
  return movedim(x, from, to);
}
Tensor moveaxis(const Tensor& x, const Dims& from, const Dims& to) {
  const OpCall call("moveaxis", {{"x", x}});
  return movedim(x, from, to);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  const OpCall call("expand", {{"x", x}});
  return autograd::record_unary("expand", x, raw::expand(x, shape),
                                [x_shape = x.shape()](const Tensor& dy) { return sum_to(dy, x_shape); });
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  const OpCall call("broadcast_to", {{"x", x}});
  return expand(x, shape);
}

Tensor expand_as(const Tensor& x, const Tensor& other) {
  const OpCall call("expand_as", {{"x", x}, {"other", other}});
  return expand(x, other.shape());
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  const OpCall call("sum_to", {{"x", x}});
  Tensor y = raw::sum_to(x, shape);
  if (y.is_same(x)) return y;
  if (Recorder r{"sum_to", x})
    r.record(y, wrt(x, [x_shape = x.shape()](const Tensor& dy) { return expand(dy, x_shape); }));
  return y;
}

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step) {
  const OpCall call("slice", {{"x", x}});
  Tensor y = raw::slice(x, dim, start, stop, step);
  if (Recorder r{"slice", x}) {
    const int64_t first = raw::clamp_slice(x.size(dim), start, stop, step).start;
    r.record(y, wrt(x, [shape = x.shape(), dim, first, step](const Tensor& dy) {
               return slice_backward(dy, shape, dim, first, step);
             }));
  }
  return y;
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  const OpCall call("narrow", {{"x", x}});
  Tensor y = raw::narrow(x, dim, start, length);
  if (Recorder r{"narrow", x}) {
    const int64_t first = start < 0 ? start + x.size(dim) : start;
    r.record(y, wrt(x, [shape = x.shape(), dim, first](const Tensor& dy) {
               return slice_backward(dy, shape, dim, first);
             }));
  }
  return y;
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  const OpCall call("select", {{"x", x}});
  Tensor y = raw::select(x, dim, index);
  if (Recorder r{"select", x}) {
    const int d = wrap_dim(dim, x.dim(), "select");
    const int64_t at = index < 0 ? index + x.size(d) : index;
    r.record(y, wrt(x, [shape = x.shape(), d, at](const Tensor& dy) {
               return slice_backward(unsqueeze(dy, d), shape, d, at);
             }));
  }
  return y;
}

Tensor slice_backward(const Tensor& y, const Shape& shape, int64_t dim, int64_t start, int64_t step) {
  const OpCall call("slice_backward", {{"y", y}});
  const TensorOptions options{.dtype = y.dtype(), .device = y.device()};
  Tensor x = y.is_channels_last() ? empty_channels_last(shape, options) : empty(shape, options);
  const int d = wrap_dim(dim, x.dim(), "slice_backward");
  const int64_t n = y.size(d);
  if (start < 0) throw IndexError("slice_backward", "expected a start of at least 0, got ", start);
  const int64_t stop = n > 0 ? Checked("slice_backward", n - 1) * step + start + 1 : start;
  const Tensor target = raw::slice(x, d, start, stop, step);
  if (target.shape() != y.shape())
    throw ShapeError("slice_backward", "y does not fit into shape ", shape, " from ", start, " in steps of ",
                     step, ": y ", describe(y));
  raw::fill_(x, 0);
  raw::copy_(target, y);
  if (Recorder r{"slice_backward", y})
    r.record(x, wrt(y, [d, start, stop, step](const Tensor& dx) { return slice(dx, d, start, stop, step); }));
  return x;
}

Tensor diagonal(const Tensor& x, DiagonalOptions options) {
  const OpCall call("diagonal", {{"x", x}});
  return autograd::record_unary(
      "diagonal", x, raw::diagonal(x, options.offset, options.dim1, options.dim2),
      [shape = x.shape(), options](const Tensor& dy) { return diagonal_backward(dy, shape, options); });
}

Tensor diagonal_backward(const Tensor& dy, const Shape& shape, DiagonalOptions options) {
  const OpCall call("diagonal_backward", {{"dy", dy}});
  Tensor x = empty(shape, {.dtype = dy.dtype(), .device = dy.device()});
  const Tensor target = raw::diagonal(x, options.offset, options.dim1, options.dim2);
  if (target.shape() != dy.shape())
    throw ShapeError("diagonal_backward", "the diagonal of shape ", shape, " is ", target.shape(), ": dy ",
                     describe(dy));
  raw::fill_(x, 0);
  raw::copy_(target, dy);
  if (Recorder r{"diagonal_backward", dy})
    r.record(x, wrt(dy, [options](const Tensor& g) { return diagonal(g, options); }));
  return x;
}

Tensor unfold_dim(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  const OpCall call("unfold_dim", {{"x", x}});
  return autograd::record_unary("unfold_dim", x, raw::unfold(x, dim, size, step),
                                [shape = x.shape(), dim, size, step](const Tensor& dy) {
                                  return unfold_dim_backward(dy, shape, dim, size, step);
                                });
}

Tensor unfold_dim_backward(const Tensor& dy, const Shape& shape, int64_t dim, int64_t size, int64_t step) {
  const OpCall call("unfold_dim_backward", {{"dy", dy}});
  return autograd::record_unary(
      "unfold_dim_backward", dy, raw::unfold_backward(dy, shape, dim, size, step),
      [dim, size, step](const Tensor& g) { return unfold_dim(g, dim, size, step); });
}

}  // namespace gradus
