#include "gradus/tensor/ops/conv.h"

#include "gradus/tensor/ops/copy.h"

namespace gradus::raw {
namespace {

// Bounds every size that comes from outside, so that no product below overflows.
constexpr int64_t kMaxExtent = int64_t(1) << 31;

void check_operand(const char* op, const char* name, const Tensor& t, const Tensor& like) {
  if (t.device() != like.device())
    throw DeviceError(op, name, " is on ", t.device(), " but the other operand on ", like.device(), ": ",
                      name, ' ', describe(t));
  if (t.dtype() != like.dtype())
    throw DTypeError(op, name, " is ", t.dtype(), " but the other operand ", like.dtype(), ": ", name, ' ',
                     describe(t));
}

void check_dtype(const char* op, const char* name, const Tensor& t) {
  if (t.dtype() != DType::kF32 && t.dtype() != DType::kF64)
    throw DTypeError(op, "expected f32 or f64: ", name, ' ', describe(t));
}

void check_size(const char* op, const char* what, Size2 s, int64_t least) {
  if (s.h < least || s.w < least || s.h >= kMaxExtent || s.w >= kMaxExtent)
    throw ValueError(op, what, " must be at least ", least, ", given ", s);
}

int64_t output_extent(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

// Checks that filters w fit images of shape x, and returns the result's shape.
Shape conv2d_shape(const char* op, const Shape& x, const Shape& w, const Conv2dOptions& o,
                   TensorOptions like) {
  auto given = [&] {  // only put together for an error
    return concat(": x ", like.dtype, x, ' ', like.device, ", weight ", like.dtype, w, ' ', like.device);
  };
  if (x.size() != 4) throw ShapeError(op, "x must be [N,C,H,W]", given());
  if (w.size() != 4) throw ShapeError(op, "weight must be [O,C/groups,KH,KW]", given());
  check_size(op, "stride", o.stride, 1);
  check_size(op, "padding", o.padding, 0);
  check_size(op, "dilation", o.dilation, 1);
  if (o.groups < 1) throw ValueError(op, "groups must be at least 1, given ", o.groups);
  for (int d = 0; d < 4; ++d) {
    if (x[d] < 0 || x[d] >= kMaxExtent) throw ShapeError(op, "x has a size out of range", given());
    if (w[d] < 1 || w[d] >= kMaxExtent) throw ShapeError(op, "weight must not be empty", given());
  }
  if (w[0] % o.groups != 0)
    throw ShapeError(op, "output channels ", w[0], " do not divide into ", o.groups, " groups", given());
  if (x[1] != w[1] * o.groups)
    throw ShapeError(op, "weight has ", w[1] * o.groups, " input channels but x has ", x[1],
                     o.groups > 1 ? concat(" (", o.groups, " groups)") : "", given());
  const Size2 image{x[2] + 2 * o.padding.h, x[3] + 2 * o.padding.w};
  const Size2 kernel{o.dilation.h * (w[2] - 1) + 1, o.dilation.w * (w[3] - 1) + 1};
  if (kernel.h > image.h || kernel.w > image.w)
    throw ShapeError(op, "kernel of ", kernel, " is larger than the padded input of ", image, given());
  return {x[0], w[0], output_extent(x[2], w[2], o.stride.h, o.padding.h, o.dilation.h),
          output_extent(x[3], w[3], o.stride.w, o.padding.w, o.dilation.w)};
}

void check_result_grad(const char* op, const Tensor& dy, const Shape& want) {
  if (!(dy.shape() == want)) throw ShapeError(op, "dy must be ", want, ": dy ", describe(dy));
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& options) {
  const char* op = "conv2d";
  check_dtype(op, "x", x);
  check_operand(op, "weight", w, x);
  const TensorOptions like{x.dtype(), x.device()};
  const Shape shape = conv2d_shape(op, x.shape(), w.shape(), options, like);
  if (bias.defined()) {
    check_operand(op, "bias", bias, x);
    if (bias.dim() != 1 || bias.size(0) != w.size(0))
      throw ShapeError(op, "bias must have ", w.size(0), " elements: bias ", describe(bias), ", weight ",
                       describe(w));
  }
  Tensor y = empty_channels_last(shape, like);
  if (y.numel() > 0)
    conv2d_kernel(y, channels_last(x), contiguous(w), bias.defined() ? contiguous(bias) : bias, options);
  return y;
}

Tensor conv2d_input_grad(const Tensor& dy, const Tensor& w, const Shape& x_shape,
                         const Conv2dOptions& options) {
  const char* op = "conv2d_input_grad";
  check_dtype(op, "dy", dy);
  check_operand(op, "weight", w, dy);
  const TensorOptions like{dy.dtype(), dy.device()};
  check_result_grad(op, dy, conv2d_shape(op, x_shape, w.shape(), options, like));
  Tensor dx = empty_channels_last(x_shape, like);
  if (dx.numel() > 0) conv2d_input_grad_kernel(dx, channels_last(dy), contiguous(w), options);
  return dx;
}

std::pair<Tensor, Tensor> conv2d_weight_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape,
                                             bool with_bias, const Conv2dOptions& options) {
  const char* op = "conv2d_weight_grad";
  check_dtype(op, "x", x);
  check_operand(op, "dy", dy, x);
  const TensorOptions like{x.dtype(), x.device()};
  check_result_grad(op, dy, conv2d_shape(op, x.shape(), w_shape, options, like));
  Tensor dw = empty(w_shape, like), db = with_bias ? empty({w_shape[0]}, like) : Tensor();
  if (dy.numel() > 0) {
    conv2d_weight_grad_kernel(dw, db, channels_last(dy), channels_last(x), options);
  } else {
    fill_(dw, 0);
    if (with_bias) fill_(db, 0);
  }
  return {dw, db};
}

}  // namespace gradus::raw
