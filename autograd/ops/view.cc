#include "gradus/autograd/ops/view.h"

#include "gradus/autograd/record.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"

namespace gradus {
namespace {

// Records y as x under another shape.
Tensor reshaped(const char* op, const Tensor& x, Tensor y) {
  if (Recorder r{op, x})
    r.record(y, wrt(x, [shape = x.shape()](const Tensor& dy) { return reshape(dy, shape); }));
  return y;
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) { return reshaped("reshape", x, raw::reshape(x, shape)); }
Tensor view(const Tensor& x, const Shape& shape) { return reshaped("view", x, raw::view(x, shape)); }
Tensor flatten(const Tensor& x, int64_t start, int64_t end) {
  return reshaped("flatten", x, raw::flatten(x, start, end));
}
Tensor squeeze(const Tensor& x) { return reshaped("squeeze", x, raw::squeeze(x)); }
Tensor squeeze(const Tensor& x, int64_t dim) { return reshaped("squeeze", x, raw::squeeze(x, dim)); }
Tensor unsqueeze(const Tensor& x, int64_t dim) { return reshaped("unsqueeze", x, raw::unsqueeze(x, dim)); }

Tensor permute(const Tensor& x, const Dims& order) {
  Tensor y = raw::permute(x, order);
  if (Recorder r{"permute", x})
    r.record(y, wrt(x, [back = raw::inverse_order(order)](const Tensor& dy) { return permute(dy, back); }));
  return y;
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  Tensor y = raw::transpose(x, dim0, dim1);
  if (Recorder r{"transpose", x})
    r.record(y, wrt(x, [dim0, dim1](const Tensor& dy) { return transpose(dy, dim0, dim1); }));
  return y;
}

Tensor t(const Tensor& x) {
  if (x.dim() > 2) throw ShapeError("t", "expected at most 2 dims, call transpose(): x ", describe(x));
  return x.dim() < 2 ? x : transpose(x, 0, 1);
}

Tensor movedim(const Tensor& x, int64_t from, int64_t to) {
  Tensor y = raw::movedim(x, from, to);
  if (Recorder r{"movedim", x})
    r.record(y, wrt(x, [from, to](const Tensor& dy) { return movedim(dy, to, from); }));
  return y;
}

Tensor expand(const Tensor& x, const Shape& shape) {
  Tensor y = raw::expand(x, shape);
  if (Recorder r{"expand", x})
    r.record(y, wrt(x, [own = x.shape()](const Tensor& dy) { return sum_to(dy, own); }));
  return y;
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) { return expand(x, shape); }

Tensor sum_to(const Tensor& x, const Shape& shape) {
  Tensor y = raw::sum_to(x, shape);
  if (y.is_same(x)) return y;
  if (Recorder r{"sum_to", x})
    r.record(y, wrt(x, [own = x.shape()](const Tensor& dy) { return expand(dy, own); }));
  return y;
}

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step) {
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
  const TensorOptions options{.dtype = y.dtype(), .device = y.device()};
  Tensor x = y.is_channels_last() ? empty_channels_last(shape, options) : empty(shape, options);
  const int d = wrap_dim(dim, x.dim(), "slice_backward");
  const int64_t n = y.size(d), stop = n > 0 ? start + (n - 1) * step + 1 : start;
  raw::fill_(x, 0);
  raw::copy_(raw::slice(x, d, start, stop, step), y);
  if (Recorder r{"slice_backward", y})
    r.record(x, wrt(y, [d, start, stop, step](const Tensor& dx) { return slice(dx, d, start, stop, step); }));
  return x;
}

}  // namespace gradus
