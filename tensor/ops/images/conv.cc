// Raw convolutions of 2 or 3 spatial dims (check_conv also takes 1): check the arguments, convert images to
// channels-last and weights to row-major layout, allocate the result, and call the device's kernel. For
// x [N, C, H, W], with zeros as padding, and w [O, C/groups, KH, KW]:
//   y[n, o, i, j] = bias[o] + sum_{c, k, l} w[o, c, k, l] * x[n, c', s i + d k - p, s j + d l - p]
// with stride s, dilation d and padding p, where c' is channel c of o's group. Empty results skip the kernel.
#include "gradus/tensor/ops/images/conv.h"

#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

// Shapes in errors, indexed by the number of spatial dims.
constexpr const char* kInput[] = {"", "[N,C,L]", "[N,C,H,W]", "[N,C,D,H,W]"};
constexpr const char* kWeight[] = {"", "[O,C/groups,K]", "[O,C/groups,KH,KW]", "[O,C/groups,KD,KH,KW]"};
std::string sizes(const Dims& d) {
  std::string s;
  for (int64_t v : d) s += (s.empty() ? "" : "x") + std::to_string(v);
  return s;
}

// Checks that the parameter t has the device and dtype of the data x.
void check_pair(const char* op, const char* x_name, const Tensor& x, const char* name, const Tensor& t) {
  if (!are_compatible_devices(t.device(), x.device()))
    throw DeviceError(op, name, " is on ", t.device(), " but ", x_name, " on ", x.device(), ": ", name, ' ',
                      describe(t));
  check_same_dtype(op, x_name, x, name, t);
}

void check_size(const char* op, const char* what, const Dims& s, int64_t least) {
  for (int64_t v : s)
    if (v < least || v > kMaxExtent)
      throw ValueError(
          op, what, v < least ? concat(" must be at least ", least) : concat(" must be at most ", kMaxExtent),
          ", got ", sizes(s));
}

// Checks that filters of shape w fit images of shape x, and returns the result's shape [N, O, ...]. `like`:
// dtype and device of x and w, for errors.
// Errors: ShapeError; ValueError for options out of range. Sizes up to kMaxExtent avoid overflow in kernels.
Shape conv_shape(const char* op, const Shape& x, const Shape& w, const ConvGeometry& g, TensorOptions like) {
  auto describe_args = [&] {  // only called for errors
    return concat(": x ", like.dtype, x, ' ', like.device, ", weight ", like.dtype, w, ' ', like.device);
  };
  const int rank = g.rank();
  if (x.size() != rank + 2) throw ShapeError(op, "x must be ", kInput[rank], describe_args());
  if (w.size() != rank + 2) throw ShapeError(op, "weight must be ", kWeight[rank], describe_args());
  check_size(op, "stride", g.stride, 1);
  check_size(op, "padding", g.padding, 0);
  check_size(op, "dilation", g.dilation, 1);
  check_bounds(op, "groups", g.groups, 1);
  for (int d = 0; d < rank + 2; ++d) {
    if (x[d] < 0 || x[d] > kMaxExtent) throw ShapeError(op, "x has a size out of range", describe_args());
    if (w[d] < 1) throw ShapeError(op, "weight must not be empty", describe_args());
    if (w[d] > kMaxExtent) throw ShapeError(op, "weight has a size out of range", describe_args());
  }
  if (w[0] % g.groups != 0)
    throw ShapeError(op, "output channels ", w[0], " do not divide into ", g.groups, " groups",
                     describe_args());
  if (x[1] % g.groups != 0 || x[1] / g.groups != w[1])
    throw ShapeError(op, "weight has ", w[1] * g.groups, " input channels but x has ", x[1],
                     g.groups > 1 ? concat(" (", g.groups, " groups)") : "", describe_args(),
                     x[rank + 1] == w[1] * g.groups
                         ? concat("; images are ", kInput[rank], ": movedim(x, -1, ", -rank - 1,
                                  ") moves the channels there")
                         : "");
  Shape y{x[0], w[0]};
  Dims image, kernel;
  for (int d = 0; d < rank; ++d) {
    image.push_back(x[d + 2] + 2 * g.padding[d]);
    kernel.push_back(g.dilation[d] * (w[d + 2] - 1) + 1);
    y.push_back((image[d] - kernel[d]) / g.stride[d] + 1);
  }
  for (int d = 0; d < rank; ++d)
    if (kernel[d] > image[d])
      throw ShapeError(op, "kernel of ", sizes(kernel), " is larger than the padded input of ", sizes(image),
                       describe_args());
  return y;
}

// Sets the dilation to 1 along dims in which the filter has one tap and dilation has no effect.
ConvGeometry without_idle_dilation(ConvGeometry g, const Shape& w) {
  for (int d = 0; d < g.rank(); ++d)
    if (w[d + 2] == 1) g.dilation[d] = 1;
  return g;
}

void check_result_grad(const char* op, const Tensor& dy, const Shape& expected) {
  if (!(dy.shape() == expected)) throw ShapeError(op, "dy must be ", expected, ": dy ", describe(dy));
}

Tensor conv_by(const decltype(conv_kernel)& kernel, const char* op, const Tensor& x, const Tensor& w,
               const Tensor& bias, const ConvGeometry& geometry) {
  const Shape shape = check_conv(op, x, w, bias, geometry);
  Tensor y = empty_channels_last(shape, {x.dtype(), x.device()});
  if (y.numel() > 0)
    kernel(y, channels_last(x), contiguous(w), bias.defined() ? contiguous(bias) : bias,
           without_idle_dilation(geometry, w.shape()));
  return y;
}

}  // namespace

Shape check_conv(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const ConvGeometry& geometry) {
  check_floating(op, "x", x);
  check_pair(op, "x", x, "weight", w);
  const Shape shape = conv_shape(op, x.shape(), w.shape(), geometry, {x.dtype(), x.device()});
  if (bias.defined()) {
    check_pair(op, "x", x, "bias", bias);
    if (bias.dim() != 1 || bias.size(0) != w.size(0))
      throw ShapeError(op, "bias must have ", w.size(0), " elements: bias ", describe(bias), ", weight ",
                       describe(w));
  }
  return shape;
}

Tensor conv(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
            const ConvGeometry& geometry) {
  return conv_by(conv_kernel, op, x, w, bias, geometry);
}
Tensor conv_relu(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const ConvGeometry& geometry) {
  return conv_by(conv_relu_kernel, op, x, w, bias, geometry);
}

Tensor conv_input_grad(const char* op, const Tensor& dy, const Tensor& w, const Tensor& bias,
                       const Shape& x_shape, const ConvGeometry& geometry) {
  check_floating(op, "dy", dy);
  check_pair(op, "dy", dy, "weight", w);
  const TensorOptions like{dy.dtype(), dy.device()};
  check_result_grad(op, dy, conv_shape(op, x_shape, w.shape(), geometry, like));
  if (bias.defined()) {
    check_pair(op, "dy", dy, "bias", bias);
    if (bias.dim() != 1 || bias.size(0) != x_shape[1])
      throw ShapeError(op, "bias must have ", x_shape[1], " elements: bias ", describe(bias));
  }
  Tensor dx = empty_channels_last(x_shape, like);
  if (dx.numel() > 0)
    conv_input_grad_kernel(dx, channels_last(dy), contiguous(w), bias.defined() ? contiguous(bias) : bias,
                           without_idle_dilation(geometry, w.shape()));
  return dx;
}

std::pair<Tensor, Tensor> conv_weight_grad(const char* op, const Tensor& dy, const Tensor& x,
                                           const Shape& w_shape, bool with_bias, const ConvGeometry& geometry,
                                           std::optional<DType> dtype) {
  check_floating(op, "x", x);
  check_pair(op, "dy", dy, "x", x);
  const TensorOptions like{x.dtype(), x.device()};
  check_result_grad(op, dy, conv_shape(op, x.shape(), w_shape, geometry, like));
  if (dtype && *dtype != x.dtype() && *dtype != DType::kF32)
    throw DTypeError(op, "expected a gradient in f32 or in x's dtype, got ", *dtype, ": x ", describe(x));
  const TensorOptions result{dtype.value_or(x.dtype()), x.device()};
  Tensor dw = empty(w_shape, result), db = with_bias ? empty({w_shape[0]}, result) : Tensor();
  if (dy.numel() > 0) {
    conv_weight_grad_kernel(dw, db, channels_last(dy), channels_last(x),
                            without_idle_dilation(geometry, w_shape));
  } else {  // a batch without images: the sums are empty
    fill_(dw, 0);
    if (with_bias) fill_(db, 0);
  }
  return {dw, db};
}

}  // namespace gradus::raw
