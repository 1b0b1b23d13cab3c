// Concatenation, stacking, splitting and one-hot encoding. cat, stack, split and unbind call a raw:: op
// (without gradients) and record one rule for all inputs and outputs: the gradients of cat and stack are
// views of dy, those of split and unbind a cat or stack of the dys. The other functions are composed of these
// four. Splits return views.
#include "gradus/autograd/ops/concat.h"

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/concat.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/ops/view.h"

namespace gradus {
namespace {

// Replaces undefined gradients of pieces (not reached by the backward) by zeros. At least one is defined.
std::vector<Tensor> with_zeros(std::vector<Tensor> dys, const std::vector<Shape>& shapes) {
  TensorOptions options;
  for (const Tensor& dy : dys)
    if (dy.defined()) options = {.dtype = dy.dtype(), .device = dy.device()};
  for (size_t i = 0; i < dys.size(); ++i)
    if (!dys[i].defined()) dys[i] = zeros(shapes[i], options);
  return dys;
}

std::vector<Shape> shapes_of(const std::vector<Tensor>& xs) {
  std::vector<Shape> shapes;
  for (const Tensor& x : xs) shapes.push_back(x.shape());
  return shapes;
}

}  // namespace

Tensor cat(const std::vector<Tensor>& xs, int64_t dim) {
  const OpCall call("cat", "xs", xs);
  if (autograd::Casting cast{"cat", xs}) return cat(cast(xs), dim);
  Tensor y = raw::cat(xs, dim);
  if (Recorder r{"cat", xs}) {
    const int d = wrap_dim(dim, y.dim(), "cat");
    std::vector<int64_t> sizes;
    for (const Tensor& x : xs) sizes.push_back(x.shape()[d]);
    r.record_joint({&y, 1}, xs, [d, sizes](std::vector<Tensor> dys, autograd::Needs needs) {
      std::vector<Tensor> dxs(sizes.size());
      int64_t at = 0;
      for (size_t i = 0; i < sizes.size(); at += sizes[i++])
        if (needs[i]) dxs[i] = narrow(dys[0], d, at, sizes[i]);
      return dxs;
    });
  }
  return y;
}

Tensor stack(const std::vector<Tensor>& xs, int64_t dim) {
  const OpCall call("stack", "xs", xs);
  if (autograd::Casting cast{"stack", xs}) return stack(cast(xs), dim);
  Tensor y = raw::stack(xs, dim);
  if (Recorder r{"stack", xs}) {
    const int d = wrap_dim(dim, y.dim(), "stack");
    r.record_joint({&y, 1}, xs, [d, n = xs.size()](std::vector<Tensor> dys, autograd::Needs needs) {
      std::vector<Tensor> dxs(n);
      for (size_t i = 0; i < n; ++i)
        if (needs[i]) dxs[i] = select(dys[0], d, static_cast<int64_t>(i));
      return dxs;
    });
  }
  return y;
}

namespace {

// Returns f(x) for each x.
template <class F> std::vector<Tensor> each(const std::vector<Tensor>& xs, F f) {
  std::vector<Tensor> ys;
  ys.reserve(xs.size());
  for (const Tensor& x : xs) ys.push_back(f(x));
  return ys;
}

}  // namespace

Tensor atleast_1d(const Tensor& x) {
  const OpCall call("atleast_1d", {{"x", x}});
  return x.dim() == 0 ? reshape(x, {1}) : x;
}
Tensor atleast_2d(const Tensor& x) {
  const OpCall call("atleast_2d", {{"x", x}});
  return x.dim() < 2 ? unsqueeze(atleast_1d(x), 0) : x;
}
Tensor atleast_3d(const Tensor& x) {
  const OpCall call("atleast_3d", {{"x", x}});
  return x.dim() < 3 ? unsqueeze(atleast_2d(x), -1) : x;
}

namespace {

// Concatenates f(x) of each x along `dim`, or along the last dim if the first f(x) has no dim of this number.
template <class F> Tensor joined(const char* op, const std::vector<Tensor>& xs, int64_t dim, F f) {
  const OpCall call(op, "xs", xs);
  if (xs.empty()) throw ValueError(op, "expected at least one tensor, got none");
  const std::vector<Tensor> parts = each(xs, f);
  return cat(parts, std::min<int64_t>(dim, parts[0].dim() - 1));
}

}  // namespace

Tensor hstack(const std::vector<Tensor>& xs) { return joined("hstack", xs, 1, atleast_1d); }
Tensor vstack(const std::vector<Tensor>& xs) { return joined("vstack", xs, 0, atleast_2d); }
Tensor dstack(const std::vector<Tensor>& xs) { return joined("dstack", xs, 2, atleast_3d); }
Tensor column_stack(const std::vector<Tensor>& xs) {
  const auto column = [](const Tensor& x) { return x.dim() < 2 ? reshape(x, {x.numel(), 1}) : x; };
  return joined("column_stack", xs, 1, column);
}

std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& xs) {
  const OpCall call("broadcast_tensors", "xs", xs);
  Shape s;
  for (const Tensor& x : xs) s = broadcast_shapes(s, x.shape(), "broadcast_tensors");
  return each(xs, [&](const Tensor& x) { return expand(x, s); });
}

std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim) {
  const OpCall call("tensor_split", {{"x", x}});
  check_bounds("tensor_split", "number of sections", sections, 1, kMaxSplits);
  if (x.dim() == 0) throw ShapeError("tensor_split", "x has no dims: x ", describe(x));
  const int64_t n = x.size(dim);
  std::vector<int64_t> sizes(sections, n / sections);
  for (int64_t i = 0; i < n % sections; ++i) ++sizes[i];
  return split(x, sizes, dim);
}

std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim) {
  const OpCall call("tensor_split", {{"x", x}});
  if (x.dim() == 0) throw ShapeError("tensor_split", "x has no dims: x ", describe(x));
  std::vector<Tensor> pieces;
  int64_t start = 0;
  for (const int64_t stop : indices) {
    pieces.push_back(slice(x, dim, start, stop));
    start = stop;
  }
  pieces.push_back(slice(x, dim, start, x.size(dim)));
  return pieces;
}

namespace {

// Splits x along `dim`, or along the last dim if x has no dim of this number. `parts` are the indices at
// which to split, or an int64_t: a number of sections of equal size. `min_dims` is the smallest number of
// dims x may have.
template <class Parts>
std::vector<Tensor> split_along(const char* op, const Tensor& x, int min_dims, int64_t dim,
                                const Parts& parts) {
  const OpCall call(op, {{"x", x}});
  if (x.dim() < min_dims)
    throw ShapeError(op, "expected at least ", min_dims, min_dims == 1 ? " dim" : " dims", ", got x ",
                     describe(x));
  const int64_t d = std::min<int64_t>(dim, x.dim() - 1);
  if constexpr (std::is_same_v<Parts, int64_t>)
    if (parts < 1 || x.size(d) % parts != 0)
      throw ValueError(op, "dim ", d, " of size ", x.size(d), " has no ", parts,
                       " sections of equal size: x ", describe(x));
  return tensor_split(x, parts, d);
}

}  // namespace

std::vector<Tensor> hsplit(const Tensor& x, int64_t n) { return split_along("hsplit", x, 1, 1, n); }
std::vector<Tensor> vsplit(const Tensor& x, int64_t n) { return split_along("vsplit", x, 2, 0, n); }
std::vector<Tensor> dsplit(const Tensor& x, int64_t n) { return split_along("dsplit", x, 3, 2, n); }
std::vector<Tensor> hsplit(const Tensor& x, const std::vector<int64_t>& indices) {
  return split_along("hsplit", x, 1, 1, indices);
}
std::vector<Tensor> vsplit(const Tensor& x, const std::vector<int64_t>& indices) {
  return split_along("vsplit", x, 2, 0, indices);
}
std::vector<Tensor> dsplit(const Tensor& x, const std::vector<int64_t>& indices) {
  return split_along("dsplit", x, 3, 2, indices);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t dim) {
  const OpCall call("split", {{"x", x}});
  const int64_t n = x.size(dim);
  const int d = wrap_dim(dim, x.dim(), "split");
  std::vector<Tensor> pieces;
  pieces.reserve(sizes.size());
  int64_t at = 0;
  for (const int64_t size : sizes) {
    if (size < 0 || size > n - at)
      throw ShapeError("split", "pieces do not fit dim ", d, " of size ", n, ": a piece of ", size, " at ",
                       at, " of x ", describe(x));
    pieces.push_back(raw::narrow(x, d, at, size));
    at += size;
  }
  if (at != n)
    throw ShapeError("split", "pieces take ", at, " of dim ", d, " of size ", n, ": x ", describe(x));
  if (Recorder r{"split", x}; r && !pieces.empty())
    r.record_joint(pieces, {x}, [d, shapes = shapes_of(pieces)](std::vector<Tensor> dys, autograd::Needs) {
      return std::vector<Tensor>{cat(with_zeros(std::move(dys), shapes), d)};
    });
  return pieces;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  const OpCall call("split", {{"x", x}});
  if (size < 1) throw ValueError("split", "expected pieces of at least 1, got ", size);
  std::vector<int64_t> sizes;
  int64_t left = x.size(dim);
  check_bounds("split", "number of pieces", left / size, 0, kMaxSplits);
  do {
    sizes.push_back(std::min(size, left));
    left -= sizes.back();
  } while (left > 0);
  return split(x, sizes, dim);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  const OpCall call("chunk", {{"x", x}});
  if (chunks < 1) throw ValueError("chunk", "expected at least 1 chunk, got ", chunks);
  const int64_t n = x.size(dim);
  if (n == 0) {
    check_bounds("chunk", "number of chunks", chunks, 1, kMaxSplits);
    return split(x, std::vector<int64_t>(size_t(chunks), 0), dim);
  }
  return split(x, n / chunks + (n % chunks != 0), dim);
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim) {
  const OpCall call("unbind", {{"x", x}});
  const int64_t n = x.size(dim);
  check_bounds("unbind", "number of pieces", n, 0, kMaxSplits);
  const int d = wrap_dim(dim, x.dim(), "unbind");
  std::vector<Tensor> pieces;
  pieces.reserve(n);
  for (int64_t i = 0; i < n; ++i) pieces.push_back(raw::select(x, d, i));
  if (Recorder r{"unbind", x}; r && n > 0)
    r.record_joint(pieces, {x}, [d, shapes = shapes_of(pieces)](std::vector<Tensor> dys, autograd::Needs) {
      return std::vector<Tensor>{stack(with_zeros(std::move(dys), shapes), d)};
    });
  return pieces;
}

Tensor one_hot(const Tensor& index, int64_t classes, DType dtype) {
  const OpCall call("one_hot", {{"index", index}});
  return raw::one_hot(index, classes, dtype);
}

}  // namespace gradus
