// Pooling without gradients: checks, computes the geometry of the windows (PoolWindows), converts inputs to
// channels-last, allocates channels-last results and calls the device's kernel. Average pooling and
// max_pool_gather convert 16-bit floats to f32 on the CPU; the kernels of GPUs read them. `index` is the row-major
// position of a window's maximum within the window; max_pool_positions converts it to the position in the image.
// Tensors have a batch dim: [N, C, L] for rank 1, [N, C, H, W] for rank 2, [N, C, D, H, W] for rank 3.
#include "gradus/tensor/ops/images/pool.h"

#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

constexpr const char* kShapes[] = {"[N,C,L] or [C,L]", "[N,C,H,W] or [C,H,W]", "[N,C,D,H,W] or [C,D,H,W]"};
constexpr const char* kMaxNames[] = {"max_pool1d", "max_pool2d", "max_pool3d"};
constexpr const char* kAvgNames[] = {"avg_pool1d", "avg_pool2d", "avg_pool3d"};

// Returns the sizes of the last `rank` dims; missing dims are 1.
Size3 extent(const Tensor& x, int rank) {
  return {rank > 2 ? x.size(-3) : 1, rank > 1 ? x.size(-2) : 1, x.size(-1)};
}

void check_input(const char* op, const Tensor& x, int rank) {
  if (x.dim() != rank + 2) throw ShapeError(op, "x must be ", kShapes[rank - 1], ": x ", describe(x));
  check_floating(op, "x", x);
  const Size3 in = extent(x, rank);
  if (x.size(1) == 0 || in.d == 0 || in.h == 0 || in.w == 0)
    throw ShapeError(op, "x has no pixels to pool: x ", describe(x));
  for (int64_t n : {in.d, in.h, in.w}) check_bounds(op, "a side of x", n, 1);
}

void check_size(const char* op, const char* what, Size3 s, int64_t least) {
  for (int64_t v : {s.d, s.h, s.w}) check_bounds(op, what, v, least);
}

// Returns the number of windows along an axis of `in` cells.
int64_t output_extent(const char* op, const Tensor& x, int64_t in, int64_t kernel, int64_t stride,
                      int64_t padding, int64_t dilation, bool ceil_mode) {
  const int64_t reach = dilation * (kernel - 1) + 1;
  if (2 * padding > reach)
    throw ValueError(op, "padding ", padding, " is more than half of the window's ", reach);
  const int64_t room = in + 2 * padding - reach;
  // With ceil_mode the last window may extend beyond the padded input by less than `stride`, even if it is
  // the only one. Every window starts inside the image or its left padding.
  if (room < 0 && (!ceil_mode || room <= -stride))
    throw ShapeError(op, "window of ", reach, " is larger than the padded input of ", in + 2 * padding,
                     ceil_mode ? concat(" by a stride of ", stride, " or more") : "", ": x ", describe(x));
  const int64_t out = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  return ceil_mode && (out - 1) * stride >= in + padding ? out - 1 : out;
}

// Converts 1- or 2-dim options to 3-dim ones. `filler` is the value of missing dims.
Size3 as_volume(int64_t w, int64_t filler) { return {filler, filler, w}; }
Size3 as_volume(Size2 s, int64_t filler) { return {filler, s.h, s.w}; }
Size3 as_volume(Size3 s, int64_t) { return s; }

PoolWindows windows_of(const char* op, const Tensor& x, int rank, Size3 kernel, Size3 stride, Size3 padding,
                       Size3 dilation, bool ceil_mode) {
  check_input(op, x, rank);
  check_size(op, "kernel", kernel, 1);
  check_size(op, "stride", stride, 0);
  check_size(op, "padding", padding, 0);
  check_size(op, "dilation", dilation, 1);
  if (stride.d == 0) stride.d = kernel.d;
  if (stride.h == 0) stride.h = kernel.h;
  if (stride.w == 0) stride.w = kernel.w;
  check_bounds(op, "number of pixels in the window", Checked(op, kernel.d) * kernel.h * kernel.w, 1);
  const Size3 in = extent(x, rank);
  const Size3 output{output_extent(op, x, in.d, kernel.d, stride.d, padding.d, dilation.d, ceil_mode),
                     output_extent(op, x, in.h, kernel.h, stride.h, padding.h, dilation.h, ceil_mode),
                     output_extent(op, x, in.w, kernel.w, stride.w, padding.w, dilation.w, ceil_mode)};
  return {rank, in, output, kernel, stride, padding, dilation};
}

template <class Options> PoolWindows max_windows(const Tensor& x, int rank, const Options& o) {
  return windows_of(kMaxNames[rank - 1], x, rank, as_volume(*o.kernel, 1), as_volume(o.stride, 1),
                    as_volume(o.padding, 0), as_volume(o.dilation, 1), o.ceil_mode);
}

template <class Options> PoolWindows avg_windows(const Tensor& x, int rank, const Options& o) {
  PoolWindows w = windows_of(kAvgNames[rank - 1], x, rank, as_volume(*o.kernel, 1), as_volume(o.stride, 1),
                             as_volume(o.padding, 0), 1, o.ceil_mode);
  if (rank == 3)  // not supported, as in PyTorch
    for (const auto& [kernel, padded] : {std::pair(w.kernel.d, w.input.d + 2 * w.padding.d),
                                         std::pair(w.kernel.h, w.input.h + 2 * w.padding.h),
                                         std::pair(w.kernel.w, w.input.w + 2 * w.padding.w)})
      if (kernel > padded)
        throw ShapeError(kAvgNames[2], "window of ", kernel, " is larger than the padded input of ", padded,
                         ": x ", describe(x));
  w.count_include_pad = o.count_include_pad;
  if constexpr (requires { o.divisor_override; }) {
    if (o.divisor_override < 0)
      throw ValueError(kAvgNames[rank - 1], "divisor_override must be at least 0, got ", o.divisor_override);
    w.divisor = o.divisor_override;
  }
  return w;
}

// Returns an uninitialized channels-last tensor [N, C, size...] with x's N and C.
Tensor image_like(const Tensor& x, int rank, Size3 size, DType dtype) {
  Shape shape{x.size(0), x.size(1)};
  if (rank > 2) shape.push_back(size.d);
  if (rank > 1) shape.push_back(size.h);
  shape.push_back(size.w);
  return empty_channels_last(shape, {dtype, x.device()});
}

// Returns the dtype of the kernels' operands for x: the CPU's take no 16-bit floats.
DType kernel_dtype(const Tensor& x) {
  return size_of(x.dtype()) == 2 && x.device().type != DeviceType::kCUDA ? DType::kF32 : x.dtype();
}
Tensor prepared(const Tensor& x) { return channels_last(to(x, kernel_dtype(x))); }
Tensor outputs_like(const Tensor& x, const PoolWindows& w) {
  return image_like(x, w.rank, w.output, kernel_dtype(x));
}
Tensor inputs_like(const Tensor& y, const PoolWindows& w) {
  return image_like(y, w.rank, w.input, kernel_dtype(y));
}

// Throws ShapeError unless t is [N, C, size...].
void check_cells(const char* op, const char* name, const Tensor& t, int rank, Size3 size) {
  if (t.dim() != rank + 2 || extent(t, rank) != size)
    throw ShapeError(op, name, " must be [N,C", rank > 2 ? concat(',', size.d) : "",
                     rank > 1 ? concat(',', size.h) : "", ',', size.w, "]: ", name, ' ', describe(t));
}
DType index_type(const PoolWindows& w) { return w.kernel_numel() <= 256 ? DType::kU8 : DType::kI32; }

// Throws unless `index` has dtype index_type(w), shape [N, C, output...], and the device, N and C of `like`.
void check_index(const char* op, const Tensor& index, const Tensor& like, const PoolWindows& w) {
  check_cells(op, "index", index, w.rank, w.output);
  if (!are_compatible_devices(index.device(), like.device()))
    throw DeviceError(op, "operands on different devices: index ", describe(index), " and ", describe(like));
  if (index.dtype() != index_type(w))
    throw DTypeError(op, "index must be ", index_type(w), ": index ", describe(index));
  if (index.size(0) != like.size(0) || index.size(1) != like.size(1))
    throw ShapeError(op, "index ", describe(index), " does not belong to ", describe(like));
}

}  // namespace

PoolWindows max_pool1d_windows(const Tensor& x, const MaxPool1dOptions& o) { return max_windows(x, 1, o); }
PoolWindows max_pool2d_windows(const Tensor& x, const MaxPool2dOptions& o) { return max_windows(x, 2, o); }
PoolWindows max_pool3d_windows(const Tensor& x, const MaxPool3dOptions& o) { return max_windows(x, 3, o); }
PoolWindows avg_pool1d_windows(const Tensor& x, const AvgPool1dOptions& o) { return avg_windows(x, 1, o); }
PoolWindows avg_pool2d_windows(const Tensor& x, const AvgPool2dOptions& o) { return avg_windows(x, 2, o); }
PoolWindows avg_pool3d_windows(const Tensor& x, const AvgPool3dOptions& o) { return avg_windows(x, 3, o); }

PoolWindows adaptive_windows(const char* op, const Tensor& x, int rank, Size3 output) {
  check_input(op, x, rank);
  check_size(op, "output size", output, 1);
  // The maximum over o of the window sizes ceil((o + 1) in / out) - floor(o in / out).
  auto largest = [](int64_t in, int64_t out) {
    const int64_t remainder = in % out;
    return in / out + (remainder == 0 ? 0 : out % remainder == 0 ? 1 : 2);
  };
  const Size3 in = extent(x, rank);
  PoolWindows w{rank, in, output};
  w.kernel = {largest(in.d, output.d), largest(in.h, output.h), largest(in.w, output.w)};
  w.adaptive = true;
  check_bounds(op, "number of pixels in the window", Checked(op, w.kernel.d) * w.kernel.h * w.kernel.w, 1);
  return w;
}

std::pair<Tensor, Tensor> max_pool(const Tensor& x, const PoolWindows& w) {
  check_cells("max_pool", "x", x, w.rank, w.input);
  const Tensor y = image_like(x, w.rank, w.output, x.dtype()),
               index = image_like(x, w.rank, w.output, index_type(w));
  if (y.numel() > 0) max_pool_kernel(y, index, channels_last(x), w);
  return {y, index};
}

Tensor max_pool_value(const Tensor& x, const PoolWindows& w) {
  check_cells("max_pool", "x", x, w.rank, w.input);
  const Tensor y = image_like(x, w.rank, w.output, x.dtype());
  if (y.numel() > 0) max_pool_kernel(y, {}, channels_last(x), w);
  return y;
}

Tensor max_pool_scatter(const Tensor& dy, const Tensor& index, const PoolWindows& w) {
  check_cells("max_pool_scatter", "dy", dy, w.rank, w.output);
  check_index("max_pool_scatter", index, dy, w);
  const Tensor dx = image_like(dy, w.rank, w.input, dy.dtype());
  if (dx.numel() > 0) max_pool_scatter_kernel(dx, channels_last(dy), channels_last(index), w);
  return dx;
}

Tensor max_pool_gather(const Tensor& x, const Tensor& index, const PoolWindows& w) {
  check_cells("max_pool_gather", "x", x, w.rank, w.input);
  check_index("max_pool_gather", index, x, w);
  const Tensor y = outputs_like(x, w);
  if (y.numel() > 0) max_pool_gather_kernel(y, prepared(x), channels_last(index), w);
  return to(y, x.dtype());
}

Tensor max_pool_positions(const Tensor& index, const PoolWindows& w) {
  check_index("max_pool_positions", index, index, w);
  const Tensor positions = image_like(index, w.rank, w.output, DType::kI64);
  if (index.numel() > 0) max_pool_positions_kernel(positions, channels_last(index), w);
  return positions;
}

Tensor avg_pool(const Tensor& x, const PoolWindows& w) {
  check_cells("avg_pool", "x", x, w.rank, w.input);
  const Tensor y = outputs_like(x, w);
  if (y.numel() > 0) avg_pool_kernel(y, prepared(x), w);
  return to(y, x.dtype());
}

Tensor avg_pool_spread(const Tensor& dy, const PoolWindows& w) {
  check_cells("avg_pool_spread", "dy", dy, w.rank, w.output);
  const Tensor dx = inputs_like(dy, w);
  if (dx.numel() > 0) avg_pool_spread_kernel(dx, prepared(dy), w);
  return to(dx, dy.dtype());
}

// In place: x = relu(h), channels-last, becomes the gradient of max_pool(x) with respect to h. The windows must be
// disjoint and without padding, which is not checked.
void max_pool_relu_grad_(const Tensor& x, const Tensor& dy, const PoolWindows& w) {
  check_cells("max_pool_relu_grad_", "x", x, w.rank, w.input);
  check_cells("max_pool_relu_grad_", "dy", dy, w.rank, w.output);
  check_same_dtype("max_pool_relu_grad_", "dy", dy, "x", x);
  if (x.numel() > 0) max_pool_relu_grad_kernel(x, channels_last(dy), w);
  x.storage()->bump_version();
}

}  // namespace gradus::raw
