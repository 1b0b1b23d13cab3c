// Implementation of the raw ops that reorder elements: flip copies a view with negative strides, roll copies
// blocks, unfold_backward adds to views of windows; triangles and repetition have kernels. Results are new
// tensors; x may have any strides and be on any device, except that indices_in computes on the host.
#include "gradus/tensor/ops/arrange.h"

#include <span>
#include <vector>

#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"

namespace gradus::raw {
namespace {

// A circular shift of dim `dim` by `by` elements.
struct Shift {
  int dim;
  int64_t by;  // in (0, size)
};

// out = x with all `shifts`. Each shift divides its dim into two blocks, so k shifts are 2^k copies.
void copy_rolled(const Tensor& out, const Tensor& x, std::span<const Shift> shifts) {
  if (shifts.empty()) return copy_(out, x);
  const auto [dim, by] = shifts[0];
  const int64_t rest = x.shape()[dim] - by;
  copy_rolled(narrow(out, dim, by, rest), narrow(x, dim, 0, rest), shifts.subspan(1));
  copy_rolled(narrow(out, dim, 0, by), narrow(x, dim, rest, by), shifts.subspan(1));
}

// Returns the triangle of the matrices x [..., n, m] up to (`upper`: from) diagonal number `diagonal`, as
// tril and triu.
Tensor triangle(const Tensor& x, int64_t diagonal, bool upper, const char* op) {
  if (x.dim() < 2) throw ShapeError(op, "expected at least 2 dims, got x ", describe(x));
  const Tensor out = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  diagonal = std::clamp(diagonal, -x.size(-2), x.size(-1));  // beyond: all elements are on one side
  if (out.numel() > 0) triangle_kernel(out, contiguous(x), diagonal, upper);
  return out;
}

}  // namespace

Tensor flip(const Tensor& x, const Dims& dims) {
  const Tensor out = empty_like(x);
  Strides strides = x.strides();
  int64_t offset = x.impl().offset;
  uint32_t used = 0;
  for (int64_t dim : dims) {
    const int d = wrap_dim(dim, x.dim(), "flip");
    if (used & (1u << d))
      throw ShapeError("flip", "dims ", dims, " names dim ", d, " twice: x ", describe(x));
    used |= 1u << d;
    if (x.dim() == 0) continue;
    offset += (x.shape()[d] - 1) * strides[d];
    strides[d] = -strides[d];
  }
  if (out.numel() > 0) copy_kernel(out, view_as_strided(x, x.shape(), strides, offset));
  return out;
}

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
  if (dims.empty()) {
    if (shifts.size() != 1)
      throw ShapeError("roll", "shifts ", shifts, " without dims: expected one shift, for the flattened x ",
                       describe(x));
    return reshape(roll(reshape(x, {x.numel()}), shifts, {0}), x.shape());
  }
  if (shifts.size() != dims.size())
    throw ShapeError("roll", "shifts ", shifts, " are not as many as dims ", dims, ": x ", describe(x));
  const Tensor out = empty_like(x);
  Dims total = Dims::filled(x.dim(), 0);
  for (int i = 0; i < dims.size(); ++i) {
    const int d = wrap_dim(dims[i], x.dim(), "roll");
    if (out.numel() == 0 || x.dim() == 0) continue;
    const int64_t n = x.shape()[d];
    total[d] = (total[d] + (shifts[i] % n + n)) % n;
  }
  std::vector<Shift> moves;
  for (int d = 0; d < x.dim(); ++d)
    if (total[d] != 0) moves.push_back({d, total[d]});
  copy_rolled(out, x, moves);
  return out;
}

Tensor tril(const Tensor& x, int64_t diagonal) { return triangle(x, diagonal, false, "tril"); }
Tensor triu(const Tensor& x, int64_t diagonal) { return triangle(x, diagonal, true, "triu"); }

Tensor unfold_backward(const Tensor& dy, const Shape& shape, int64_t dim, int64_t size, int64_t step) {
  // 16-bit floats are summed in f32 and rounded once.
  const bool narrow_float = is_floating(dy.dtype()) && size_of(dy.dtype()) == 2;
  const Tensor dx = empty(shape, {.dtype = narrow_float ? DType::kF32 : dy.dtype(), .device = dy.device()});
  fill_(dx, 0);
  const Tensor windows = unfold(dx, dim, size, step);
  if (windows.shape() != dy.shape())
    throw ShapeError("unfold_dim_backward", "dy is not of shape ", windows.shape(), ": dy ", describe(dy));
  // Windows that do not overlap are copied. Otherwise element i of all windows is added at once: such
  // elements are distinct.
  if (step >= size) {
    copy_(windows, dy);
  } else {
    for (int64_t i = 0; i < size; ++i) add_(select(windows, -1, i), select(dy, -1, i));
  }
  return to(dx, dy.dtype());
}

Tensor repeat_index(const Tensor& counts, std::optional<int64_t> total) {
  const Tensor c = contiguous(to(counts, DType::kI64));
  if (total && *total < 0)
    throw ValueError("repeat_interleave", "expected a size of at least 0, got ", *total);
  if (!total) {
    if (c.device().type == DeviceType::kMeta)
      throw DeviceError("repeat_interleave",
                        "the result's shape depends on values, which a meta tensor has not: counts ",
                        describe(counts));
    total = c.numel() == 0 ? 0 : sum(c).item<int64_t>();
  }
  // If the sum is negative or has overflowed, the kernel throws.
  const Tensor out = empty({std::max<int64_t>(*total, 0)}, {.dtype = DType::kI64, .device = counts.device()});
  if (c.numel() > 0 || *total > 0) repeat_kernel(out, c);
  return out;
}

Tensor indices_in(const Tensor& x, const Tensor& view) {
  // Maps each storage offset between the first and last element of x and `view` to an index of x.
  int64_t last = std::max(x.impl().offset, view.impl().offset);
  for (const Tensor* t : {&x, &view}) {
    int64_t end = t->impl().offset;
    for (int d = 0; d < t->dim(); ++d) end += (t->shape()[d] - 1) * t->strides()[d];
    if (t->numel() > 0) last = std::max(last, end);
  }
  const Tensor index_tensor = empty({last + 1}, {.dtype = DType::kI64});
  int64_t* const index_of_offset = index_tensor.ptr<int64_t>();
  std::fill_n(index_of_offset, last + 1, x.numel());
  const auto for_each_element = [](const Tensor& t, auto f) {
    for (int64_t i = 0; i < t.numel(); ++i) {
      int64_t at = t.impl().offset;
      for (int64_t d = t.dim() - 1, left = i; d >= 0; left /= t.shape()[static_cast<int>(d)], --d)
        at += left % t.shape()[static_cast<int>(d)] * t.strides()[static_cast<int>(d)];
      f(i, at);
    }
  };
  for_each_element(x, [&](int64_t i, int64_t at) {
    if (index_of_offset[at] != x.numel())
      throw ShapeError("as_strided",
                       "elements of x overlap, so gradients cannot be told apart, call clone(): x ",
                       describe(x), " with strides ", x.strides());
    index_of_offset[at] = i;
  });
  const Tensor positions = empty({view.numel()}, {.dtype = DType::kI64});
  for_each_element(view, [&](int64_t i, int64_t at) { positions.ptr<int64_t>()[i] = index_of_offset[at]; });
  return to(positions, x.device());
}

}  // namespace gradus::raw
