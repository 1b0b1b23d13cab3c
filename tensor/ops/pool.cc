#include "gradus/tensor/ops/pool.h"

#include "gradus/tensor/ops/copy.h"

namespace gradus::raw {
namespace {

constexpr int64_t kMaxExtent = int64_t(1) << 31;

void check_image(const char* op, const Tensor& x) {
  if (x.dim() != 4) throw ShapeError(op, "x must be [N,C,H,W]: x ", describe(x));
  if (x.dtype() != DType::kF32 && x.dtype() != DType::kF64)
    throw DTypeError(op, "expected f32 or f64: x ", describe(x));
  if (x.size(1) == 0 || x.size(2) == 0 || x.size(3) == 0)
    throw ShapeError(op, "x has no cells to pool: x ", describe(x));
}

void check_size(const char* op, const char* what, Size2 s, int64_t least) {
  if (s.h < least || s.w < least || s.h >= kMaxExtent || s.w >= kMaxExtent)
    throw ValueError(op, what, " must be at least ", least, ", given ", s);
}

int64_t output_extent(const char* op, const Tensor& x, int64_t in, int64_t kernel, int64_t stride,
                      int64_t padding, int64_t dilation, bool ceil_mode) {
  const int64_t reach = dilation * (kernel - 1) + 1;
  if (2 * padding > reach)
    throw ValueError(op, "padding ", padding, " is more than half of the window's ", reach);
  const int64_t room = in + 2 * padding - reach;
  if (room < 0)
    throw ShapeError(op, "window of ", reach, " is larger than the padded input of ", in + 2 * padding,
                     ": x ", describe(x));
  int64_t out = room / stride + 1;
  // A window that hangs over the edge starts inside the image or its left padding.
  if (ceil_mode && room % stride != 0 && out * stride < in + padding) ++out;
  return out;
}

PoolWindows windows_of(const char* op, const Tensor& x, Size2 kernel, Size2 stride, Size2 padding,
                       Size2 dilation, bool ceil_mode) {
  check_image(op, x);
  check_size(op, "kernel", kernel, 1);
  check_size(op, "stride", stride, 0);
  check_size(op, "padding", padding, 0);
  check_size(op, "dilation", dilation, 1);
  if (stride.h == 0) stride.h = kernel.h;
  if (stride.w == 0) stride.w = kernel.w;
  const Size2 input{x.size(2), x.size(3)};
  const Size2 output{output_extent(op, x, input.h, kernel.h, stride.h, padding.h, dilation.h, ceil_mode),
                     output_extent(op, x, input.w, kernel.w, stride.w, padding.w, dilation.w, ceil_mode)};
  return {input, output, kernel, stride, padding, dilation};
}

Tensor outputs_like(const Tensor& x, const PoolWindows& w) {
  return empty_channels_last({x.size(0), x.size(1), w.output.h, w.output.w}, {x.dtype(), x.device()});
}
Tensor inputs_like(const Tensor& y, const PoolWindows& w) {
  return empty_channels_last({y.size(0), y.size(1), w.input.h, w.input.w}, {y.dtype(), y.device()});
}

void check_cells(const char* op, const char* name, const Tensor& t, Size2 size) {
  if (t.dim() != 4 || t.size(2) != size.h || t.size(3) != size.w)
    throw ShapeError(op, name, " must be [N,C,", size.h, ',', size.w, "]: ", name, ' ', describe(t));
}
DType index_type(const PoolWindows& w) { return w.kernel.h * w.kernel.w <= 256 ? DType::kU8 : DType::kI32; }

void check_index(const char* op, const Tensor& index, const Tensor& like, const PoolWindows& w) {
  check_cells(op, "index", index, w.output);
  if (index.device() != like.device())
    throw DeviceError(op, "operands on different devices: index ", describe(index), " and ", describe(like));
  if (index.dtype() != index_type(w))
    throw DTypeError(op, "index must be ", index_type(w), ": index ", describe(index));
  if (index.size(0) != like.size(0) || index.size(1) != like.size(1))
    throw ShapeError(op, "index ", describe(index), " does not belong to ", describe(like));
}

}  // namespace

PoolWindows max_pool2d_windows(const Tensor& x, const MaxPool2dOptions& o) {
  return windows_of("max_pool2d", x, o.kernel, o.stride, o.padding, o.dilation, o.ceil_mode);
}

PoolWindows avg_pool2d_windows(const Tensor& x, const AvgPool2dOptions& o) {
  PoolWindows w = windows_of("avg_pool2d", x, o.kernel, o.stride, o.padding, 1, o.ceil_mode);
  w.count_include_pad = o.count_include_pad;
  return w;
}

PoolWindows adaptive_windows(const char* op, const Tensor& x, Size2 output) {
  check_image(op, x);
  check_size(op, "output size", output, 1);
  auto largest = [](int64_t in, int64_t out) {
    return in % out == 0 ? in / out : std::min(in, in / out + 2);
  };
  PoolWindows w{{x.size(2), x.size(3)}, output};
  w.kernel = {largest(x.size(2), output.h), largest(x.size(3), output.w)};
  w.adaptive = true;
  return w;
}

std::pair<Tensor, Tensor> max_pool2d(const Tensor& x, const PoolWindows& w) {
  check_cells("max_pool2d", "x", x, w.input);
  Tensor y = outputs_like(x, w);
  Tensor index = empty_channels_last(y.shape(), {index_type(w), x.device()});
  if (y.numel() > 0) max_pool2d_kernel(y, index, channels_last(x), w);
  return {y, index};
}

Tensor max_pool2d_value(const Tensor& x, const PoolWindows& w) {
  check_cells("max_pool2d", "x", x, w.input);
  Tensor y = outputs_like(x, w);
  if (y.numel() > 0) max_pool2d_kernel(y, {}, channels_last(x), w);
  return y;
}

Tensor max_pool2d_scatter(const Tensor& dy, const Tensor& index, const PoolWindows& w) {
  check_cells("max_pool2d_scatter", "dy", dy, w.output);
  check_index("max_pool2d_scatter", index, dy, w);
  Tensor dx = inputs_like(dy, w);
  if (dx.numel() > 0) max_pool2d_scatter_kernel(dx, channels_last(dy), channels_last(index), w);
  return dx;
}

Tensor max_pool2d_gather(const Tensor& x, const Tensor& index, const PoolWindows& w) {
  check_cells("max_pool2d_gather", "x", x, w.input);
  check_index("max_pool2d_gather", index, x, w);
  Tensor y = outputs_like(x, w);
  if (y.numel() > 0) max_pool2d_gather_kernel(y, channels_last(x), channels_last(index), w);
  return y;
}

Tensor avg_pool2d(const Tensor& x, const PoolWindows& w) {
  check_cells("avg_pool2d", "x", x, w.input);
  Tensor y = outputs_like(x, w);
  if (y.numel() > 0) avg_pool2d_kernel(y, channels_last(x), w);
  return y;
}

Tensor avg_pool2d_spread(const Tensor& dy, const PoolWindows& w) {
  check_cells("avg_pool2d_spread", "dy", dy, w.output);
  Tensor dx = inputs_like(dy, w);
  if (dx.numel() > 0) avg_pool2d_spread_kernel(dx, channels_last(dy), w);
  return dx;
}

void max_pool2d_relu_grad_(const Tensor& x, const Tensor& dy, const PoolWindows& w) {
  check_cells("max_pool2d_relu_grad_", "x", x, w.input);
  check_cells("max_pool2d_relu_grad_", "dy", dy, w.output);
  x.storage()->bump_version();
  if (x.numel() > 0) max_pool2d_relu_grad_kernel(x, channels_last(dy), w);
}

}  // namespace gradus::raw
