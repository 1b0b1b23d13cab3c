// Differentiable convolutions of 1 to 3 spatial dims, transposed convolutions, and their gradients to any
// order. The raw ops of gradus/tensor/ops/images/conv.h compute; this file adds autocast, padding, and rules.
// Shapes, for 2 spatial dims:
//   convolution             x [N, C, H, W], w [O, C/groups, KH, KW], bias [O] -> y [N, O, Y, X]
//   transposed convolution  x [N, O, Y, X], w [O, C/groups, KH, KW], bias [C] -> y [N, C, H, W]
// Public functions also accept x without N. An undefined bias adds nothing.
#include "gradus/autograd/ops/images/conv.h"

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

using raw::ConvGeometry;

// Op names for errors and recordings, by number of spatial dims. 1-d convolutions run as 2-d ones.
struct Names {
  const char *conv, *input_grad, *weight_grad;
};
constexpr Names kNames[] = {{},
                            {},
                            {"conv2d", "conv2d_input_grad", "conv2d_weight_grad"},
                            {"conv3d", "conv3d_input_grad", "conv3d_weight_grad"}};
const Names& names_of(const ConvGeometry& g) { return kNames[g.rank()]; }

// Note [Three convolutions]
// With the trilinear form T(x, w, dy) = <conv(x, w), dy>, the ops y = conv(x, w), dx = conv_input_grad(dy, w)
// and dw = conv_weight_grad(dy, x) are its partial derivatives. The derivatives of each op are the other two,
// to any order. The weight gradient also computes the bias gradient; the derivative of this pair is a
// convolution with bias.

Tensor input_grad(const Tensor& dy, const Tensor& w, const Shape& x_shape, const ConvGeometry& g);
std::pair<Tensor, Tensor> weight_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape, bool with_bias,
                                      const ConvGeometry& g, DType dtype);

// Returns the dtype of w's gradient: f32, to avoid a rounding, if w is a 16-bit autocast copy of f32 weights.
DType grad_dtype_of(const Tensor& w) {
  return autograd::gradient_dtype(w) == DType::kF32 ? DType::kF32 : w.dtype();
}

// Returns x in channels-last layout, which kernels read. The converted copy is saved for the weight gradient,
// so that the backward need not convert again. Leaves a tracked x unchanged: kernels then convert it.
Tensor as_channels_last(const Tensor& x, const ConvGeometry& g) {
  return x.dim() == g.rank() + 2 && !autograd::is_tracked(x) ? raw::channels_last(x) : x;
}

// Records y as the result of a convolution. Saves x only if w or bias is tracked, and w only if x is. The
// rule is deferrable: it may run twice, for dx first and for dw and dbias later.
void record_conv(Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, const ConvGeometry& g) {
  if (Recorder r{names_of(g).conv, x, w, bias}) {
    const bool filters = autograd::any_tracked(w, bias);
    r.record_joint({&y, 1}, {x, w, bias},
                   [x = filters ? r.save(x) : autograd::Saved(),
                    w = autograd::is_tracked(x) ? r.save(w) : autograd::Saved(), x_shape = x.shape(),
                    w_shape = w.shape(), g,
                    dtype = grad_dtype_of(w)](std::vector<Tensor> dys, autograd::Needs needs) mutable {
                     std::vector<Tensor> grads(3);
                     if (needs[1] || needs[2])
                       std::tie(grads[1], grads[2]) =
                           weight_grad(dys[0], x.release(), w_shape, needs[2], g, dtype);
                     if (needs[0]) grads[0] = input_grad(dys[0], w.get(), x_shape, g);
                     return grads;
                   },
                   {.deferrable = true});
  }
}

// y = conv(x, w) + bias for x with a batch dim, differentiable.
Tensor conv(const Tensor& images, const Tensor& w, const Tensor& bias, const ConvGeometry& g) {
  const Tensor x = as_channels_last(images, g);
  Tensor y = raw::conv(names_of(g).conv, x, w, bias, g);
  record_conv(y, x, w, bias, g);
  return y;
}

// relu(conv(x, w) + bias) by one kernel, recorded as conv followed by relu. `op` is the name in errors.
Tensor rectified_conv(const char* op, const Tensor& images, const Tensor& w, const Tensor& bias,
                      const ConvGeometry& g) {
  const Tensor x = as_channels_last(images, g);
  const Tensor y = raw::conv_relu(op, x, w, bias, g);
  Tensor h = detach(y);  // stands for the relu's operand in the graph; no rule reads its elements
  record_conv(h, x, w, bias, g);
  if (Recorder r{"relu", h})
    r.record(y, wrt(h, [y = r.save_output(y)](Tensor dy) { return relu_backward(std::move(dy), y.get()); }));
  return y;
}

// Returns the transposed convolution of dy [N, O, ...] with w [O, C/groups, ...], which has shape `x_shape`
// [N, C, ...], plus bias [C] if defined. Equals the gradient of conv with respect to x.
Tensor transposed_conv(const char* op, const Tensor& dy, const Tensor& w, const Tensor& bias,
                       const Shape& x_shape, const ConvGeometry& g) {
  Tensor dx = raw::conv_input_grad(op, dy, w, bias, x_shape, g);
  Dims all_but_channels{0};
  for (int d = 2; d < x_shape.size(); ++d) all_but_channels.push_back(d);
  if (Recorder r{op, dy, w, bias})
    r.record(
        dx, wrt(dy, [w = r.save(w), g](const Tensor& v) { return conv(v, w.get(), {}, g); }),
        wrt(w, [dy = r.save(dy), w_shape = w.shape(), g, dtype = grad_dtype_of(w)](
                   const Tensor& v) { return weight_grad(dy.get(), v, w_shape, false, g, dtype).first; }),
        wrt(bias, [all_but_channels](const Tensor& v) { return sum(v, all_but_channels); }));
  return dx;
}

Tensor input_grad(const Tensor& dy, const Tensor& w, const Shape& x_shape, const ConvGeometry& g) {
  return transposed_conv(names_of(g).input_grad, dy, w, {}, x_shape, g);
}

// Returns the gradients (dw, dbias) of conv, in `dtype`. dbias is undefined unless `with_bias`. In the rule,
// vs are the gradients of dw and dbias; the gradient of dy is conv(x, vs[0]) + vs[1].
std::pair<Tensor, Tensor> weight_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape, bool with_bias,
                                      const ConvGeometry& g, DType dtype) {
  const char* op = names_of(g).weight_grad;
  const auto result = raw::conv_weight_grad(op, dy, x, w_shape, with_bias, g, dtype);
  if (Recorder r{op, dy, x}) {
    const Tensor outputs[] = {result.first, result.second};
    r.record_joint(
        outputs, {dy, x},
        [dy = r.save(dy), x = r.save(x), w_shape, g](std::vector<Tensor> vs, autograd::Needs needs) {
          std::vector<Tensor> grads(2);
          const Tensor v = x.get();
          // Undefined if only the bias's gradient was used.
          if (!vs[0].defined()) vs[0] = zeros(w_shape, {v.dtype(), v.device()});
          for (Tensor& of_result : vs)  // converts both to the dtype of v
            if (of_result.defined()) of_result = to(of_result, v.dtype());
          if (needs[0]) grads[0] = conv(v, vs[0], vs[1], g);
          if (needs[1]) grads[1] = input_grad(dy.get(), vs[0], v.shape(), g);
          return grads;
        });
  }
  return result;
}

// Returns x with `count` zeros at the end of a dim.
Tensor with_zeros_at_end(const Tensor& x, int64_t dim, int64_t count) {
  if (count == 0) return x;
  Shape shape = x.shape();
  shape[int(dim)] += count;
  return slice_backward(x, shape, dim, 0);
}

// Replaces same_padding by padding: sets g.padding to (kernel - 1) * dilation / 2 on both sides of each dim,
// and returns x, with one zero appended in dims where that total is odd. g.padding must be 0 and g.stride 1.
Tensor pad_same(const char* op, Tensor x, const Tensor& w, ConvGeometry& g) {
  for (int d = 0; d < g.rank(); ++d) {
    if (g.stride[d] != 1) throw ValueError(op, "same_padding needs a stride of 1, got ", g.stride[d]);
    if (g.padding[d] != 0)
      throw ValueError(op, "same_padding leaves no room for a padding of ", g.padding[d]);
    if (g.dilation[d] < 1 || x.dim() != g.rank() + 2 || w.dim() != g.rank() + 2) return x;  // checked later
    check_bounds(op, "dilation", g.dilation[d], 1);
    const int64_t zeros = Checked(op, w.size(d + 2) - 1) * g.dilation[d];
    g.padding[d] = zeros / 2;
    x = with_zeros_at_end(x, d + 2, zeros % 2);
  }
  return x;
}

// Returns the geometry of a 1-d convolution for x viewed as an image of height 1.
ConvGeometry as_image(ConvGeometry g) {
  g.stride.insert(0, 1), g.padding.insert(0, 0), g.dilation.insert(0, 1);
  return g;
}

// Convolution with 1 to 3 spatial dims, with or without a batch dim. 1-d ones are computed as 2-d ones.
Tensor conv_any_rank(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias, ConvGeometry g,
                     bool same_padding) {
  if (x.dim() == g.rank() + 1)
    return squeeze(conv_any_rank(op, unsqueeze(x, 0), w, bias, g, same_padding), 0);
  const Tensor padded = same_padding ? pad_same(op, x, w, g) : x;
  if (g.rank() > 1) return conv(padded, w, bias, g);
  raw::check_conv(op, padded, w, bias, g);
  return squeeze(conv(unsqueeze(padded, 2), unsqueeze(w, 2), bias, as_image(g)), 2);
}

// Returns the shape [N, C, ...] of a transposed convolution for x [N, O, ...], w [O, C/groups, ...]. Sizes:
// (x - 1) * stride - 2 * padding + (kernel - 1) * dilation + output_padding + 1.
Shape transposed_shape(const char* op, const Tensor& x, const Tensor& w, const ConvGeometry& g,
                       const Dims& output_padding) {
  const int rank = g.rank();
  const auto given = [&] { return concat(": x ", describe(x), ", weight ", describe(w)); };
  if (x.dim() != rank + 2)
    throw ShapeError(op, "x must have ", rank + 1, " or ", rank + 2, " dimensions", given());
  if (w.dim() != rank + 2) throw ShapeError(op, "weight must have ", rank + 2, " dimensions", given());
  check_bounds(op, "groups", g.groups, 1);
  if (x.size(1) != w.size(0))
    throw ShapeError(op, "weight takes ", w.size(0), " channels but x has ", x.size(1), given());
  Shape y{x.size(0), Checked(op, w.size(1)) * g.groups};
  for (int d = 0; d < rank; ++d) {
    const int64_t extra = output_padding[d];
    check_bounds(op, "stride", g.stride[d], 1);
    check_bounds(op, "dilation", g.dilation[d], 1);
    check_bounds(op, "padding", g.padding[d], 0);
    if (extra < 0 || (extra >= g.stride[d] && extra >= g.dilation[d]))
      throw ValueError(op, "output_padding must be at least 0 and below stride or dilation, got ", extra,
                       " with stride ", g.stride[d], ", dilation ", g.dilation[d]);
    const int64_t window = Checked(op, w.size(d + 2) - 1) * g.dilation[d] + extra + 1;
    y.push_back(Checked(op, x.size(d + 2) - 1) * g.stride[d] - 2 * g.padding[d] + window);
    if (y[d + 2] < 1) throw ShapeError(op, "a result of size ", y[d + 2], " in dim ", d + 2, given());
  }
  return y;
}

// Transposed convolution with 1 to 3 spatial dims, with or without a batch dim. Computed as the input
// gradient of the convolution that maps the result's shape to x's shape.
Tensor conv_transpose_any_rank(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                               const ConvGeometry& g, const Dims& output_padding) {
  check_floating(op, "x", x);
  check_same_dtype(op, "x", x, "weight", w);
  if (x.dim() == g.rank() + 1)
    return squeeze(conv_transpose_any_rank(op, unsqueeze(x, 0), w, bias, g, output_padding), 0);
  const Shape shape = transposed_shape(op, x, w, g, output_padding);
  Tensor extended = x;  // x, with zeros appended where the output padding is a stride or more
  for (int d = 0; d < g.rank(); ++d)
    extended = with_zeros_at_end(extended, d + 2, output_padding[d] / g.stride[d]);
  // Checks the arguments as those of the convolution whose input gradient this is; that convolution's input
  // has the result's shape.
  const Shape conv_shape =
      raw::check_conv(op, empty(shape, {x.dtype(), Device{DeviceType::kMeta, 0}}),
                      empty(w.shape(), {x.dtype(), Device{DeviceType::kMeta, 0}}), {}, g);
  if (!(conv_shape == extended.shape()))
    throw InternalError(op, ": ", conv_shape, " is not ", extended.shape());
  if (g.rank() > 1) return transposed_conv(op, extended, w, bias, shape, g);
  Shape image = shape;
  image.insert(2, 1);
  return squeeze(transposed_conv(op, unsqueeze(extended, 2), unsqueeze(w, 2), bias, image, as_image(g)), 2);
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv1dFuncOptions& o) {
  const OpCall call("conv1d", {{"x", x}, {"weight", w}});
  if (autograd::Casting cast{"conv1d"}) return conv1d(cast(x), cast.weight(w), cast.weight(bias), o);
  return conv_any_rank("conv1d", x, w, bias, o, o.same_padding);
}
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dFuncOptions& o) {
  const OpCall call("conv2d", {{"x", x}, {"weight", w}});
  if (autograd::Casting cast{"conv2d"}) return conv2d(cast(x), cast.weight(w), cast.weight(bias), o);
  return conv_any_rank("conv2d", x, w, bias, o, o.same_padding);
}
Tensor conv2d_relu(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dFuncOptions& o) {
  const OpCall call("conv2d_relu", {{"x", x}, {"weight", w}});
  if (autograd::Casting cast{"conv2d"}) return conv2d_relu(cast(x), cast.weight(w), cast.weight(bias), o);
  if (x.dim() == 3) return squeeze(conv2d_relu(unsqueeze(x, 0), w, bias, o), 0);
  ConvGeometry g = o;
  const Tensor padded = o.same_padding ? pad_same("conv2d_relu", x, w, g) : x;
  return rectified_conv("conv2d_relu", padded, w, bias, g);
}
Tensor conv3d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv3dFuncOptions& o) {
  const OpCall call("conv3d", {{"x", x}, {"weight", w}});
  if (autograd::Casting cast{"conv3d"}) return conv3d(cast(x), cast.weight(w), cast.weight(bias), o);
  return conv_any_rank("conv3d", x, w, bias, o, o.same_padding);
}

Tensor conv2d_input_grad(const Tensor& dy, const Tensor& w, const Shape& x_shape,
                         const Conv2dFuncOptions& o) {
  const OpCall call("conv2d_input_grad", {{"dy", dy}, {"weight", w}});
  return input_grad(dy, w, x_shape, o);
}
Tensor conv3d_input_grad(const Tensor& dy, const Tensor& w, const Shape& x_shape,
                         const Conv3dFuncOptions& o) {
  const OpCall call("conv3d_input_grad", {{"dy", dy}, {"weight", w}});
  return input_grad(dy, w, x_shape, o);
}

std::pair<Tensor, Tensor> conv2d_weight_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape,
                                             bool with_bias, const Conv2dFuncOptions& o) {
  const OpCall call("conv2d_weight_grad", {{"dy", dy}, {"x", x}});
  return weight_grad(dy, x, w_shape, with_bias, o, x.dtype());
}
std::pair<Tensor, Tensor> conv3d_weight_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape,
                                             bool with_bias, const Conv3dFuncOptions& o) {
  const OpCall call("conv3d_weight_grad", {{"dy", dy}, {"x", x}});
  return weight_grad(dy, x, w_shape, with_bias, o, x.dtype());
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const ConvTranspose1dFuncOptions& o) {
  const OpCall call("conv_transpose1d", {{"x", x}, {"weight", w}});
  if (autograd::Casting cast{"conv_transpose1d"})
    return conv_transpose1d(cast(x), cast.weight(w), cast.weight(bias), o);
  return conv_transpose_any_rank("conv_transpose1d", x, w, bias,
                                 Conv1dFuncOptions{o.stride, o.padding, o.dilation, o.groups},
                                 {o.output_padding});
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const ConvTranspose2dFuncOptions& o) {
  const OpCall call("conv_transpose2d", {{"x", x}, {"weight", w}});
  if (autograd::Casting cast{"conv_transpose2d"})
    return conv_transpose2d(cast(x), cast.weight(w), cast.weight(bias), o);
  return conv_transpose_any_rank("conv_transpose2d", x, w, bias,
                                 Conv2dFuncOptions{o.stride, o.padding, o.dilation, o.groups},
                                 {o.output_padding.h, o.output_padding.w});
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const ConvTranspose3dFuncOptions& o) {
  const OpCall call("conv_transpose3d", {{"x", x}, {"weight", w}});
  if (autograd::Casting cast{"conv_transpose3d"})
    return conv_transpose3d(cast(x), cast.weight(w), cast.weight(bias), o);
  return conv_transpose_any_rank("conv_transpose3d", x, w, bias,
                                 Conv3dFuncOptions{o.stride, o.padding, o.dilation, o.groups},
                                 {o.output_padding.d, o.output_padding.h, o.output_padding.w});
}

}  // namespace gradus
