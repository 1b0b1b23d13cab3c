// Raw view ops, as in PyTorch: each computes a new shape, strides and offset (in elements from the start of
// the storage) and returns a view without autograd history. Only reshape and flatten copy, if no strides
// describe the result. Bounds are checked here, because view_as_strided does not check them.
#include "gradus/tensor/ops/view.h"

#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::raw {

Shape resolve_shape(const Tensor& x, const Shape& shape, std::string_view op) {
  Shape s = shape;
  int free = -1;  // the dim whose size is -1
  Shape known;
  for (int i = 0; i < s.size(); ++i) {
    if (s[i] == -1 && free < 0) {
      free = i;
    } else if (s[i] < 0) {
      throw ShapeError(op, "shape ", shape, " has more than one -1, or a negative size: x ", describe(x));
    } else {
      known.push_back(s[i]);
    }
  }
  const int64_t n = checked_numel(known, op);
  if (free >= 0) {
    if (n == 0) throw ShapeError(op, "the -1 in ", shape, " is ambiguous next to a 0: x ", describe(x));
    s[free] = x.numel() / n;
    if (s[free] * n != x.numel())
      throw ShapeError(op, "shape ", shape, " does not divide the ", x.numel(), " elements of x ",
                       describe(x));
  } else if (n != x.numel()) {
    throw ShapeError(op, "shape ", shape, " has ", n, " elements but x has ", x.numel(), ": x ", describe(x));
  }
  return s;
}

std::optional<Strides> view_strides(const Tensor& x, const Shape& shape) {
  if (x.is_row_major() || x.numel() == 0) return row_major_strides(shape);
  const Shape& old = x.shape();
  const Strides& st = x.strides();
  Strides out = Strides::filled(shape.size(), 1);
  // From the innermost dim outwards: `run` is the size of adjacent old dims that can be merged. Each run must
  // be the product of new dims.
  int j = shape.size() - 1;
  int64_t run = 1, run_stride = old.empty() ? 1 : st.back();
  for (int i = old.size() - 1; i >= 0; --i) {
    run *= old[i];
    if (i > 0 && (old[i - 1] == 1 || st[i - 1] == run * run_stride)) continue;
    int64_t cut = 1;  // product of the new dims assigned to this run
    for (; j >= 0 && (cut < run || shape[j] == 1); --j) {
      out[j] = cut * run_stride;
      cut *= shape[j];
    }
    if (cut != run) return std::nullopt;
    if (i > 0) run = 1, run_stride = st[i - 1];
  }
  return out;
}

Tensor view(const Tensor& x, const Shape& shape) {
  const Shape s = resolve_shape(x, shape, "view");
  const std::optional<Strides> st = view_strides(x, s);
  if (!st) {
    throw ShapeError("view", "x cannot be seen as ", s, " without copying, call reshape(): x ", describe(x),
                     " with strides ", x.strides());
  }
  return view_as_strided(x, s, *st, x.impl().offset);
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  const Shape s = resolve_shape(x, shape, "reshape");
  if (const std::optional<Strides> st = view_strides(x, s))
    return view_as_strided(x, s, *st, x.impl().offset);
  const Tensor c = contiguous(x);
  return view_as_strided(c, s, row_major_strides(s), c.impl().offset);
}

Shape flatten_shape(const Shape& shape, int64_t start, int64_t end) {
  if (shape.empty()) return {1};
  const int a = wrap_dim(start, shape.size(), "flatten"), b = wrap_dim(end, shape.size(), "flatten");
  if (a > b) throw ShapeError("flatten", "start ", start, " comes after end ", end, ": x has shape ", shape);
  Shape s;
  for (int i = 0; i < shape.size(); ++i) {
    if (i <= a || i > b) {
      s.push_back(shape[i]);
    } else {
      s[a] *= shape[i];
    }
  }
  return s;
}

Tensor flatten(const Tensor& x, int64_t start, int64_t end) {
  return reshape(x, flatten_shape(x.shape(), start, end));
}

Tensor permute(const Tensor& x, const Dims& order) {
  const int n = x.dim();
  if (order.size() != n)
    throw ShapeError("permute", "order ", order, " has ", order.size(), " entries for ", n, " dims: x ",
                     describe(x));
  Shape s = x.shape();
  Strides st = x.strides();
  uint32_t seen = 0;
  for (int i = 0; i < n; ++i) {
    const int d = wrap_dim(order[i], n, "permute");
    if (seen & (1u << d))
      throw ShapeError("permute", "order ", order, " names dim ", d, " twice: x ", describe(x));
    seen |= 1u << d;
    s[i] = x.shape()[d];
    st[i] = x.strides()[d];
  }
  return view_as_strided(x, s, st, x.impl().offset);
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  // A 0-dimensional tensor takes the same dims as a 1-dimensional one, as in other ops.
  const int n = std::max(x.dim(), 1);
  const int a = wrap_dim(dim0, n, "transpose"), b = wrap_dim(dim1, n, "transpose");
  Shape s = x.shape();
  Strides st = x.strides();
  if (a != b) std::swap(s[a], s[b]), std::swap(st[a], st[b]);
  return view_as_strided(x, s, st, x.impl().offset);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  const int extra = shape.size() - x.dim();
  if (extra < 0) throw ShapeError("expand", "shape ", shape, " has fewer dims than x has: x ", describe(x));
  Shape s = shape;
  Strides st = Strides::filled(shape.size(), 0);
  for (int i = 0; i < shape.size(); ++i) {
    const int64_t own = i < extra ? 1 : x.shape()[i - extra];
    if (s[i] == -1 && i >= extra) s[i] = own;
    if (s[i] < 0 || (own != 1 && own != s[i]))
      throw ShapeError("expand", "x cannot be expanded to ", shape, " in dim ", i, ": x ", describe(x));
    if (own == s[i] && i >= extra) st[i] = x.strides()[i - extra];
  }
  checked_numel(s, "expand");
  return view_as_strided(x, s, st, x.impl().offset);
}

namespace {

// Returns x without the dims of size 1 whose bit in `dropped` is set.
Tensor without_dims(const Tensor& x, uint32_t dropped) {
  Shape s;
  Strides st;
  for (int i = 0; i < x.dim(); ++i) {
    if (x.shape()[i] == 1 && (dropped & (1u << i))) continue;
    s.push_back(x.shape()[i]);
    st.push_back(x.strides()[i]);
  }
  return view_as_strided(x, s, st, x.impl().offset);
}

}  // namespace

Tensor squeeze(const Tensor& x) { return without_dims(x, ~0u); }

Tensor squeeze(const Tensor& x, int64_t dim) {
  return without_dims(x, 1u << wrap_dim(dim, std::max(x.dim(), 1), "squeeze"));
}

Tensor squeeze(const Tensor& x, const Dims& dims) {
  uint32_t dropped = 0;
  for (int64_t dim : dims) {
    const uint32_t flag = 1u << wrap_dim(dim, std::max(x.dim(), 1), "squeeze");
    if (dropped & flag)
      throw ShapeError("squeeze", "dims ", dims, " names dim ", dim, " twice: x ", describe(x));
    dropped |= flag;
  }
  return without_dims(x, dropped);
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  const int d = wrap_dim(dim, x.dim() + 1, "unsqueeze");
  Shape s = x.shape();
  Strides st = x.strides();
  // This stride keeps a dense layout dense. The tensor's constructor normalizes it.
  const int64_t stride = d < x.dim() ? s[d] * st[d] : 1;
  s.insert(d, 1);
  st.insert(d, stride);
  return view_as_strided(x, s, st, x.impl().offset);
}

Tensor movedim(const Tensor& x, int64_t from, int64_t to) { return permute(x, moved_order(x, from, to)); }

Dims moved_order(const Tensor& x, const Dims& from, const Dims& to) {
  const int n = x.dim();
  if (from.size() != to.size())
    throw ShapeError("movedim", "dims ", from, " are not as many as the places ", to, ": x ", describe(x));
  Dims order = Dims::filled(n, -1);
  uint32_t moved = 0;
  for (int i = 0; i < from.size(); ++i) {
    const int a = wrap_dim(from[i], n, "movedim"), b = wrap_dim(to[i], n, "movedim");
    if (n == 0) continue;
    if ((moved & (1u << a)) || order[b] >= 0)
      throw ShapeError("movedim", "dims ", from, " to ", to, " name a dim twice: x ", describe(x));
    moved |= 1u << a;
    order[b] = a;
  }
  for (int next = 0, at = 0; at < n; ++at) {
    if (order[at] >= 0) continue;
    while (moved & (1u << next)) ++next;
    order[at] = next++;
  }
  return order;
}

// One step along the diagonal advances both dims, so its stride is the sum of their strides.
Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  if (x.dim() < 2) throw ShapeError("diagonal", "expected at least 2 dims, got x ", describe(x));
  const int a = wrap_dim(dim1, x.dim(), "diagonal"), b = wrap_dim(dim2, x.dim(), "diagonal");
  if (a == b) throw ShapeError("diagonal", "dim1 and dim2 are both ", a, ": x ", describe(x));
  const int64_t rows = x.shape()[a], cols = x.shape()[b];
  const int64_t length =
      std::max<int64_t>(0, offset >= 0 ? std::min(rows, cols - offset) : std::min(rows + offset, cols));
  const int64_t first = length == 0 ? 0 : offset >= 0 ? offset * x.strides()[b] : -offset * x.strides()[a];
  Shape s;
  Strides st;
  for (int i = 0; i < x.dim(); ++i) {
    if (i == a || i == b) continue;
    s.push_back(x.shape()[i]);
    st.push_back(x.strides()[i]);
  }
  s.push_back(length);
  st.push_back(x.strides()[a] + x.strides()[b]);
  return view_as_strided(x, s, st, x.impl().offset + first);
}

Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  constexpr const char* kOp = "unfold_dim";
  if (x.dim() == 0) throw ShapeError(kOp, "x has no dims: x ", describe(x));
  const int d = wrap_dim(dim, x.dim(), kOp);
  const int64_t n = x.shape()[d];
  if (size < 0 || size > n)
    throw ShapeError(kOp, "windows of ", size, " do not fit dim ", d, " of size ", n, ": x ", describe(x));
  if (step < 1) throw ValueError(kOp, "expected a step of at least 1, got ", step);
  Shape s = x.shape();
  Strides st = x.strides();
  s[d] = (n - size) / step + 1;
  s.push_back(size);
  st.push_back(st[d]);
  if (s[d] > 1) st[d] *= step;  // a stride of a dim of size 1 is not used, and the product might overflow
  return view_as_strided(x, s, st, x.impl().offset);
}

Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset) {
  constexpr const char* kOp = "as_strided";
  if (shape.size() != strides.size())
    throw ShapeError(kOp, "shape ", shape, " and strides ", strides, " differ in length: x ", describe(x));
  if (offset < 0) throw ValueError(kOp, "expected an offset of at least 0, got ", offset);
  const int64_t n = checked_numel(shape, kOp), room = x.storage()->bytes() / size_of(x.dtype());
  int64_t end = std::min(offset, room) + 1;  // one past the view's last element; room + 1: past the storage
  for (int i = 0; i < shape.size(); ++i) {
    if (strides[i] < 0) throw ValueError(kOp, "strides ", strides, " are not all at least 0");
    // Division, because the product might overflow.
    if (n > 0 && shape[i] > 1 && strides[i] > 0 && (room - end) / strides[i] < shape[i] - 1) end = room + 1;
    if (n > 0 && end <= room) end += (shape[i] - 1) * strides[i];
  }
  if (n > 0 && end > room)
    throw ShapeError(kOp, "shape ", shape, " with strides ", strides, " from ", offset,
                     " reaches over the end of x's storage of ", room, " elements: x ", describe(x));
  return view_as_strided(x, shape, strides, offset);
}

SliceRange clamp_slice(int64_t size, int64_t start, int64_t stop, int64_t step) {
  if (step < 1) throw ValueError("slice", "expected a step of at least 1, got ", step);
  const auto clamp = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t a = clamp(start), b = clamp(stop);
  return {.start = a, .length = a < b ? (b - a - 1) / step + 1 : 0, .step = step};
}

Tensor slice(const Tensor& x, int64_t dim, int64_t start, int64_t stop, int64_t step) {
  const int d = wrap_dim(dim, x.dim(), "slice");
  const SliceRange r = clamp_slice(x.shape()[d], start, stop, step);
  Shape s = x.shape();
  Strides st = x.strides();
  const int64_t offset = r.length > 0 ? x.impl().offset + r.start * st[d] : x.impl().offset;
  s[d] = r.length;
  if (r.length > 1) st[d] *= step;
  return view_as_strided(x, s, st, offset);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  if (x.dim() == 0) throw IndexError("select", "x has no dims to index: x ", describe(x));
  const int d = wrap_dim(dim, x.dim(), "select");
  const int64_t n = x.shape()[d];
  if (index < -n || index >= n)
    throw IndexError("select", "index ", index, " is out of range for dim ", d, " of size ", n, ": x ",
                     describe(x));
  Shape s = x.shape();
  Strides st = x.strides();
  const int64_t offset = x.impl().offset + (index < 0 ? index + n : index) * st[d];
  s.erase(d);
  st.erase(d);
  return view_as_strided(x, s, st, offset);
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  if (x.dim() == 0) throw IndexError("narrow", "x has no dims to narrow: x ", describe(x));
  const int d = wrap_dim(dim, x.dim(), "narrow");
  const int64_t n = x.shape()[d], first = start < 0 ? start + n : start;
  if (first < 0 || length < 0 || first > n || length > n - first)
    throw IndexError("narrow", "start ", start, " with length ", length, " is out of range for dim ", d,
                     " of size ", n, ": x ", describe(x));
  return slice(x, d, first, first + length);
}

Dims inverse_order(const Dims& order) {
  Dims inverse = order;
  for (int i = 0; i < order.size(); ++i) inverse[wrap_dim(order[i], order.size(), "permute")] = i;
  return inverse;
}

}  // namespace gradus::raw
