// Element-wise activation functions: forward ops, and the fused backward ops that their rules call. Each op
// runs an unrecorded kernel (raw::) and, if an open recording follows an operand, records a rule that maps dy
// to dx with differentiable ops, so derivatives of any order exist. unary_saving_input and
// unary_saving_output do both for y = F(x); their rules take (dy, x) and (dy, y). Results have x's shape and
// floating-point dtype; glu halves `dim`.
#include "gradus/autograd/ops/activations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/relu_fusion.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/math.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/unary.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {

// Note [Gradients in place]
// A *_backward op writes its result into dy's buffer if it has the only reference to dy. If an open recording
// records the backward op and its derivative reads dy, dy is saved, and the result gets a buffer of its own.
namespace {

using autograd::at_least_f32;
using autograd::try_reuse;

// Returns dy's buffer for reuse, unless the derivative of the gradient op needs dy's elements.
Tensor reusable_unless_saved(const Tensor& dy, const Tensor& x) {
  return autograd::any_tracked(dy, x) ? Tensor() : try_reuse(dy, x);
}

// Returns dx = F(dy, v) of an op's gradient, where v is the op's input or output, called `name`. F is linear
// in dy; second(v) returns dF(1, v)/dv. A dy that the caller moves in may be overwritten.
template <class F, class Second, class... P>
Tensor backward_of(const char* op, const char* name, Tensor dy, const Tensor& v, Second second,
                   P... parameters) {
  const OpCall call(op, {{"dy", dy}, {name, v}});
  Tensor dx = raw::backward<F>(dy, v, reusable_unless_saved(dy, v), parameters...);
  if (Recorder r{op, dy, v})
    // `ddx` is the gradient of dx.
    r.record(dx,
             wrt(dy,
                 [=, v = r.save(v)](Tensor ddx) {
                   return backward_of<F>(op, name, std::move(ddx), v.get(), second, parameters...);
                 }),
             wrt(v, [dy = r.save(dy), v = r.save(v), second](const Tensor& ddx) {
               return ddx * dy.get() * second(v.get());
             }));
  return dx;
}

// Records y = relu(x), and returns y.
Tensor record_relu(const Tensor& x, Tensor y) {
  if (Recorder r{"relu", x})
    r.record(y, wrt(x, [y = r.save_output(y)](Tensor dy) { return relu_backward(std::move(dy), y.get()); }));
  return y;
}

}  // namespace

Tensor relu(const Tensor& x) {
  const OpCall call("relu", {{"x", x}});
  return record_relu(x, raw::unary<functors::Relu>(x));
}

Tensor relu(Tensor&& temporary) {
  const OpCall call("relu", {{"x", temporary}});
  const Tensor x = std::move(temporary);  // released on return, so that the result alone owns the buffer
  // Writes y into x's buffer. If x's node can apply the relu too, no node is added and x, now rectified, is
  // returned.
  if (!autograd::may_reuse(x)) return relu(x);
  Tensor y = detach(x);
  raw::unary_<functors::Relu>("relu_", y);
  if (autograd::fuse_relu_into_node_of(x)) return x;
  return record_relu(x, std::move(y));
}

Tensor relu_backward(Tensor dy, const Tensor& y) {
  const OpCall call("relu_backward", {{"dy", dy}, {"y", y}});
  Tensor dx = raw::backward<functors::ReluBackward>(dy, y, try_reuse(dy, y));
  if (Recorder r{"relu_backward", dy})
    r.record(dx, wrt(dy, [y = r.save(y)](Tensor ddx) { return relu_backward(std::move(ddx), y.get()); }));
  return dx;
}

Tensor leaky_relu(const Tensor& x, double slope) {
  const OpCall call("leaky_relu", {{"x", x}});
  Tensor y = raw::unary<functors::LeakyRelu>(x, slope);
  // Saves y, if y has the sign of x, because the next op is likely to save y too.
  if (Recorder r{"leaky_relu", x})
    r.record(y, wrt(x, [sign = slope >= 0 ? r.save_output(y) : r.save(x), slope](Tensor dy) {
               return leaky_relu_backward(std::move(dy), sign.get(), slope);
             }));
  return y;
}

Tensor leaky_relu_backward(Tensor dy, const Tensor& x, double slope) {
  const OpCall call("leaky_relu_backward", {{"dy", dy}, {"x", x}});
  Tensor dx = raw::backward<functors::LeakyReluBackward>(dy, x, try_reuse(dy, x), slope);
  if (Recorder r{"leaky_relu_backward", dy})
    r.record(dx, wrt(dy, [x = r.save(x), slope](Tensor ddx) {
               return leaky_relu_backward(std::move(ddx), x.get(), slope);
             }));
  return dx;
}

Tensor elu(const Tensor& x, double alpha) {
  return autograd::unary_saving_input<functors::Elu>(
      "elu", x, [alpha](Tensor dy, const Tensor& x) { return elu_backward(std::move(dy), x, alpha); }, alpha);
}

Tensor elu_backward(Tensor dy, const Tensor& x, double alpha) {
  return backward_of<functors::EluBackward>(
      "elu_backward", "x", std::move(dy), x,
      [alpha](const Tensor& x) { return where(gt(x, 0), 0, exp(clamp(x, {}, 0)) * alpha); }, alpha);
}

Tensor sigmoid(const Tensor& x) {
  return autograd::unary_saving_output<functors::Sigmoid>(
      "sigmoid", x, [](Tensor dy, const Tensor& y) { return sigmoid_backward(std::move(dy), y); });
}

Tensor sigmoid_backward(Tensor dy, const Tensor& y) {
  return backward_of<functors::SigmoidBackward>("sigmoid_backward", "y", std::move(dy), y,
                                                [](const Tensor& y) { return 1 - y * 2; });
}

Tensor logsigmoid(const Tensor& x) {
  return autograd::unary_saving_input<functors::LogSigmoid>(
      "logsigmoid", x, [](const Tensor& dy, const Tensor& x) { return dy * sigmoid(-x); });
}

Tensor tanh(const Tensor& x) {
  return autograd::unary_saving_output<functors::Tanh>(
      "tanh", x, [](Tensor dy, const Tensor& y) { return tanh_backward(std::move(dy), y); });
}

Tensor tanh_backward(Tensor dy, const Tensor& y) {
  return backward_of<functors::TanhBackward>("tanh_backward", "y", std::move(dy), y,
                                             [](const Tensor& y) { return y * -2; });
}

Tensor softplus(const Tensor& x, double beta, double threshold) {
  if (!(beta > 0)) throw ValueError("softplus", "expected beta > 0, got ", beta);
  return autograd::unary_saving_input<functors::Softplus>(
      "softplus", x,
      [beta, threshold](const Tensor& dy, const Tensor& x) {
        const Tensor z = at_least_f32(x) * beta;  // y is linear with slope 1 above the threshold
        return dy * sigmoid(where(gt(z, threshold), std::numeric_limits<double>::infinity(), z));
      },
      beta, threshold);
}

Tensor silu(const Tensor& x) {
  return autograd::unary_saving_input<functors::Silu>(
      "silu", x, [](Tensor dy, const Tensor& x) { return silu_backward(std::move(dy), x); });
}

Tensor silu_backward(Tensor dy, const Tensor& x) {
  return backward_of<functors::SiluBackward>("silu_backward", "x", std::move(dy), x, [](const Tensor& x) {
    const Tensor s = sigmoid(x);
    return s * (1 - s) * (2 + x * (1 - 2 * s));
  });
}

Tensor gelu(const Tensor& x, Gelu form) {
  const OpCall call("gelu", {{"x", x}});
  Tensor y = form == Gelu::kTanh ? raw::unary<functors::GeluTanh>(x) : raw::unary<functors::Gelu>(x);
  if (Recorder r{"gelu", x})
    r.record(
        y, wrt(x, [x = r.save(x), form](Tensor dy) { return gelu_backward(std::move(dy), x.get(), form); }));
  return y;
}

namespace {

// Returns the second derivative of gelu. kExact: (2 - x^2) p(x) with the normal density p. kTanh: gelu is
// x/2 (1 + t) with u = sqrt(2/pi) (x + 0.044715 x^3), t = tanh(u) and t' = (1 - t^2) u', so the second
// derivative is t' + x/2 t''.
Tensor gelu_second(const Tensor& x, Gelu form) {
  constexpr double kScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kCubic = 0.044715;
  const Tensor xx = square(x);
  if (form == Gelu::kExact) return exp(xx * -0.5) * (2 - xx) * (kScale / 2);
  const Tensor u = (x + xx * x * kCubic) * kScale, t = tanh(u);
  const Tensor du = (xx * (3 * kCubic) + 1) * kScale, ddu = x * (6 * kCubic * kScale);
  // 1 - t^2 = 4 sigmoid(2u) sigmoid(-2u), without cancellation for |t| near 1.
  const Tensor slope = sigmoid(u * 2) * sigmoid(u * -2) * 4, dt = slope * du;
  return dt + x * 0.5 * (slope * ddu - t * dt * du * 2);
}

}  // namespace

Tensor gelu_backward(Tensor dy, const Tensor& x, Gelu form) {
  const auto second = [form](const Tensor& x) { return gelu_second(x, form); };
  if (form == Gelu::kTanh)
    return backward_of<functors::GeluTanhBackward>("gelu_backward", "x", std::move(dy), x, second);
  return backward_of<functors::GeluBackward>("gelu_backward", "x", std::move(dy), x, second);
}

Tensor relu6(const Tensor& x) {
  const OpCall call("relu6", {{"x", x}});
  return hardtanh(x, 0, 6);
}

Tensor hardtanh(const Tensor& x, Number low, Number high) {
  const OpCall call("hardtanh", {{"x", x}});
  if (!(low.to_double() <= high.to_double()))
    throw ValueError("hardtanh", "expected low <= high, got ", low, " and ", high);
  if (is_integral(x.dtype())) return clamp(x, low, high);
  Tensor y = raw::clamp(x, low, high);
  if (Recorder r{"hardtanh", x})
    r.record(y, wrt(x, [x = r.save(x), low, high](const Tensor& dy) {
               return where(logical_or(le(x.get(), low), ge(x.get(), high)), 0, dy);
             }));
  return y;
}

Tensor hardsigmoid(const Tensor& x) {
  return autograd::unary_saving_input<functors::HardSigmoid>(
      "hardsigmoid", x, [](const Tensor& dy, const Tensor& x) {
        return where(logical_and(gt(x, -3), lt(x, 3)), dy * (1.0 / 6), 0);
      });
}

Tensor hardswish(const Tensor& x) {
  return autograd::unary_saving_input<functors::HardSwish>(
      "hardswish", x, [](const Tensor& dy, const Tensor& x) {
        const Tensor v = at_least_f32(x);
        return dy * where(le(v, -3), 0, where(lt(v, 3), v * (1.0 / 3) + 0.5, 1));
      });
}

Tensor hardshrink(const Tensor& x, double lambda) {
  return autograd::unary_saving_input<functors::HardShrink>(
      "hardshrink", x,
      [lambda](const Tensor& dy, const Tensor& x) {
        return where(logical_and(ge(x, -lambda), le(x, lambda)), 0, dy);
      },
      lambda);
}

Tensor softshrink(const Tensor& x, double lambda) {
  if (!(lambda >= 0)) throw ValueError("softshrink", "expected lambda >= 0, got ", lambda);
  return autograd::unary_saving_input<functors::SoftShrink>(
      "softshrink", x,
      [lambda](const Tensor& dy, const Tensor& x) {
        return where(logical_and(ge(x, -lambda), le(x, lambda)), 0, dy);
      },
      lambda);
}

Tensor celu(const Tensor& x, double alpha) {
  if (alpha == 0 || std::isnan(alpha)) throw ValueError("celu", "expected alpha other than 0, got ", alpha);
  return autograd::unary_saving_input<functors::Celu>(
      "celu", x,
      [alpha](const Tensor& dy, const Tensor& x) {
        const Tensor v = at_least_f32(x), low = le(v, 0);
        return dy * where(low, exp(where(low, v, 0) * (1 / alpha)), 1);
      },
      alpha);
}

Tensor selu(const Tensor& x) {
  constexpr double kScale = 1.0507009873554805, kAlpha = 1.6732632423543772;
  return autograd::unary_saving_input<functors::Selu>(
      "selu", x, [](const Tensor& dy, const Tensor& x) { return elu_backward(dy * kScale, x, kAlpha); });
}

Tensor mish(const Tensor& x) {
  return autograd::unary_saving_input<functors::Mish>("mish", x, [](const Tensor& dy, const Tensor& x) {
    const Tensor v = at_least_f32(x), t = tanh(softplus(v));
    return dy * (t + v * sigmoid(v) * (1 - square(t)));
  });
}

Tensor softsign(const Tensor& x) {
  const OpCall call("softsign", {{"x", x}});
  const DType t = autograd::floating_dtype(x);
  const Tensor v = at_least_f32(raw::to(detach(x), t));
  Tensor y = raw::to(raw::div(v, raw::add(raw::unary<functors::Abs>(v), 1)), t);
  if (Recorder r{"softsign", x})
    r.record(
        y, wrt(x, [x = r.save(x)](const Tensor& dy) { return dy / square(abs(at_least_f32(x.get())) + 1); }));
  return y;
}
Tensor tanhshrink(const Tensor& x) {
  const OpCall call("tanhshrink", {{"x", x}});
  const DType t = autograd::floating_dtype(x);
  const Tensor v = at_least_f32(raw::to(detach(x), t));
  Tensor y = raw::to(raw::sub(v, raw::unary<functors::Tanh>(v)), t);
  if (Recorder r{"tanhshrink", x})
    r.record(y,
             wrt(x, [x = r.save(x)](const Tensor& dy) { return dy * square(tanh(at_least_f32(x.get()))); }));
  return y;
}

Tensor threshold(const Tensor& x, ThresholdFuncOptions options) {
  const OpCall call("threshold", {{"x", x}});
  check_fits("threshold", options.threshold, x.dtype());
  check_fits("threshold", options.value, x.dtype());
  Tensor y = raw::unary<functors::Threshold>(x, options.threshold, options.value);
  if (Recorder r{"threshold", x})
    r.record(y, wrt(x, [x = r.save(x), t = options.threshold](const Tensor& dy) {
               return where(le(x.get(), t), 0, dy);
             }));
  return y;
}

// `weight` [1] or [C] is reshaped to broadcast along dim 1 of x [N, C, ...], or dim 0 of x [C].
Tensor prelu(const Tensor& x, const Tensor& weight) {
  const OpCall call("prelu", {{"x", x}, {"weight", weight}});
  if (autograd::Casting cast{"prelu"}) return prelu(cast(x), cast.weight(weight));
  const int64_t channels = x.dim() > 1 ? x.size(1) : x.dim() == 1 ? x.size(0) : 1;
  if (weight.dim() != 1 || (weight.size(0) != 1 && weight.size(0) != channels))
    throw ShapeError("prelu", "weight must have 1 or ", channels, " elements: weight ", describe(weight),
                     ", x ", describe(x));
  check_same_dtype("prelu", "x", x, "weight", weight);
  Shape shape = Dims::filled(std::max(x.dim(), 1), 1);
  shape[x.dim() > 1 ? 1 : 0] = weight.size(0);
  const Tensor slope = x.dim() == 0 ? reshape(weight, Shape{}) : reshape(weight, shape);
  Tensor y = raw::binary<functors::Prelu>(x, slope);
  if (Recorder r{"prelu", x, slope}) {
    const auto v = r.save(x), w = r.save(slope);
    r.record(y, wrt(x, [v, w](const Tensor& dy) { return where(gt(v.get(), 0), dy, dy * w.get()); }),
             wrt(slope, [v](const Tensor& dy) { return dy * where(gt(v.get(), 0), 0, v.get()); }));
  }
  return y;
}

Tensor glu(const Tensor& x, int64_t dim) {
  const OpCall call("glu", {{"x", x}});
  const int64_t size = x.size(dim);
  if (size % 2) throw ShapeError("glu", "dim ", dim, " must have an even size: x ", describe(x));
  return narrow(x, dim, 0, size / 2) * sigmoid(narrow(x, dim, size / 2, size / 2));
}

}  // namespace gradus
