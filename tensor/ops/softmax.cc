// softmax and log_softmax with their gradients: check operands, make them dense (row-major or channels-last),
// seen in memory order as [outer, n, inner] with n along the softmax dim, and call the kernel. 16-bit floats
// are computed in f32 and rounded once: by the kernel on a GPU, else in copies. A dim of size 1 may have any
// stride, so the view is [numel, 1, 1].
#include "gradus/tensor/ops/softmax.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

// The size and the stride (inner) of a dim of a dense tensor.
struct DimLayout {
  int64_t n = 1, inner = 1;
};

DimLayout layout_of_dim(const Tensor& x, int64_t dim, std::string_view op) {
  check_floating(op, "x", x);
  const int d = wrap_dim(dim, std::max(x.dim(), 1), op);
  if (x.dim() == 0) return {};
  DimLayout layout{x.shape()[d], 1};
  if (layout.n == 1) return layout;
  if (x.is_channels_last()) return {layout.n, x.strides()[d]};
  for (int i = d + 1; i < x.dim(); ++i) layout.inner *= x.shape()[i];
  return layout;
}

bool needs_f32_copy(const Tensor& x) {
  return size_of(x.dtype()) == 2 && x.device().type != DeviceType::kCUDA;
}

Tensor dense(const Tensor& x) { return x.is_channels_last() ? x : contiguous(x); }

Tensor forward(const Tensor& x, int64_t dim, bool log, std::string_view op) {
  const DimLayout layout = layout_of_dim(x, dim, op);
  if (needs_f32_copy(x)) return to(forward(to(x, DType::kF32), dim, log, op), x.dtype());
  const Tensor xd = dense(x);
  const Tensor y = empty_like(xd);
  softmax_kernel(y, xd, layout.n, layout.inner, log);
  return y;
}

Tensor backward(const Tensor& dy, const Tensor& y, int64_t dim, bool log, std::string_view op) {
  if (!are_compatible_devices(dy.device(), y.device()))
    throw DeviceError(op, "dy is on ", dy.device(), " but y on ", y.device());
  if (dy.shape() != y.shape() || dy.dtype() != y.dtype())
    throw ShapeError(op, "dy ", describe(dy), " does not match y ", describe(y));
  const DimLayout layout = layout_of_dim(y, dim, op);
  if (needs_f32_copy(y))
    return to(backward(to(dy, DType::kF32), to(y, DType::kF32), dim, log, op), y.dtype());
  const Tensor yd = dense(y);
  const Tensor dx = empty_like(yd);
  softmax_backward_kernel(dx, yd.is_channels_last() ? channels_last(dy) : contiguous(dy), yd, layout.n,
                          layout.inner, log);
  return dx;
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) { return forward(x, dim, false, "softmax"); }
Tensor log_softmax(const Tensor& x, int64_t dim) { return forward(x, dim, true, "log_softmax"); }
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim) {
  return backward(dy, y, dim, false, "softmax_backward");
}
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim) {
  return backward(dy, y, dim, true, "log_softmax_backward");
}

}  // namespace gradus::raw
