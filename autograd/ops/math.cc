// Exponentials, logarithms, trigonometric, hyperbolic and special functions with backward rules. A kernel
// functor computes the value; unary_saving_input (rule(dy, x)) and unary_saving_output (rule(dy, y)) save x
// or y for the rule. Rules use differentiable ops only, and f32 (at_least_f32) where 16 bits would lose the
// derivative. Casting recomputes the op in autocast's dtype.
#include "gradus/autograd/ops/math.h"

#include <limits>
#include <numbers>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/unary.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/math.h"

namespace gradus {

using autograd::at_least_f32;

Tensor exp(const Tensor& x) {
  return autograd::unary_saving_output<functors::Exp>(
      "exp", x, [](const Tensor& dy, const Tensor& y) { return dy * y; });
}

Tensor exp2(const Tensor& x) {
  return autograd::unary_saving_output<functors::Exp2>(
      "exp2", x, [](const Tensor& dy, const Tensor& y) { return dy * (y * std::numbers::ln2); });
}

Tensor expm1(const Tensor& x) {
  return autograd::unary_saving_input<functors::Expm1>(
      "expm1", x, [](const Tensor& dy, const Tensor& x) { return dy * exp(x); });
}

Tensor log(const Tensor& x) {
  return autograd::unary_saving_input<functors::Log>(
      "log", x, [](const Tensor& dy, const Tensor& x) { return dy / x; });
}

Tensor log2(const Tensor& x) {
  return autograd::unary_saving_input<functors::Log2>("log2", x, [](const Tensor& dy, const Tensor& x) {
    return dy / (at_least_f32(x) * std::numbers::ln2);
  });
}

Tensor log10(const Tensor& x) {
  return autograd::unary_saving_input<functors::Log10>("log10", x, [](const Tensor& dy, const Tensor& x) {
    return dy / (at_least_f32(x) * std::numbers::ln10);
  });
}

Tensor log1p(const Tensor& x) {
  return autograd::unary_saving_input<functors::Log1p>(
      "log1p", x, [](const Tensor& dy, const Tensor& x) { return dy / (x + 1); });
}

Tensor logaddexp(const Tensor& a, const Tensor& b) {
  const OpCall call("logaddexp", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"logaddexp"}) return logaddexp(cast(a), cast(b));
  Tensor y = raw::binary<functors::LogAddExp>(a, b);
  if (Recorder r{"logaddexp", a, b}) {
    const auto u = r.save(a), v = r.save(b);
    r.record(y, wrt(a, [u, v](const Tensor& dy) { return dy * sigmoid(u.get() - v.get()); }),
             wrt(b, [u, v](const Tensor& dy) { return dy * sigmoid(v.get() - u.get()); }));
  }
  return y;
}

Tensor xlogy(const Tensor& x, const Tensor& y) {
  const OpCall call("xlogy", {{"x", x}, {"y", y}});
  if (autograd::Casting cast{"xlogy"}) return xlogy(cast(x), cast(y));
  Tensor z = raw::binary<functors::Xlogy>(x, y);
  if (Recorder r{"xlogy", x, y}) {
    const auto u = r.save(x), v = r.save(y);
    r.record(z,
             wrt(x,
                 [u, v](const Tensor& dz) {
                   const Tensor vanishes = logical_and(eq(u.get(), 0), le(v.get(), 0));
                   return where(vanishes, 0, dz * log(where(vanishes, 1, v.get())));
                 }),
             wrt(y, [u, v](const Tensor& dz) { return dz * (u.get() / v.get()); }));
  }
  return z;
}

Tensor logit(const Tensor& x, std::optional<double> eps) {
  const OpCall call("logit", {{"x", x}});
  if (autograd::Casting cast{"logit"}) return logit(cast(x), eps);
  if (eps && !(*eps >= 0 && *eps < 0.5)) throw ValueError("logit", "expected 0 <= eps < 1/2, got ", *eps);
  const DType t = autograd::floating_dtype(x);
  const Tensor v = at_least_f32(raw::to(detach(x), t));
  const Tensor p = eps ? raw::clamp(v, *eps, 1 - *eps) : v;
  Tensor y = raw::to(raw::unary<functors::Log>(raw::div(p, raw::sub(1, p))), t);
  if (Recorder r{"logit", x})
    r.record(y, wrt(x, [x = r.save(x), eps](const Tensor& dy) {
               const Tensor u = at_least_f32(x.get());
               const double low = eps.value_or(0),
                            outside = eps ? 0 : std::numeric_limits<double>::quiet_NaN();
               const Tensor derivative = dy / abs(u * (1 - u));  // abs: +infinity at -0 too
               return where(logical_or(lt(u, low), gt(u, 1 - low)), outside, derivative);
             }));
  return y;
}

Tensor sin(const Tensor& x) {
  return autograd::unary_saving_input<functors::Sin>(
      "sin", x, [](const Tensor& dy, const Tensor& x) { return dy * cos(x); });
}

Tensor cos(const Tensor& x) {
  return autograd::unary_saving_input<functors::Cos>(
      "cos", x, [](const Tensor& dy, const Tensor& x) { return -dy * sin(x); });
}

Tensor tan(const Tensor& x) {
  return autograd::unary_saving_output<functors::Tan>(
      "tan", x, [](const Tensor& dy, const Tensor& y) { return dy * (square(at_least_f32(y)) + 1); });
}

namespace {

// Returns (1 - x^2)^(-1/2), without cancellation for |x| near 1.
Tensor rsqrt_one_minus_square(const Tensor& x) {
  const Tensor v = at_least_f32(x);
  return rsqrt((1 - v) * (v + 1));
}

// Returns u / (u^2 + v^2), without overflow of the squares; 0 where u = v = 0.
Tensor over_squares(const Tensor& u, const Tensor& v) {
  const Tensor wide = at_least_f32(u), radius = hypot(wide, at_least_f32(v)), at_zero = eq(radius, 0);
  const Tensor divisor = where(at_zero, 1, radius);
  return where(at_zero, 0, wide / divisor / divisor);
}

}  // namespace

Tensor asin(const Tensor& x) {
  return autograd::unary_saving_input<functors::Asin>(
      "asin", x, [](const Tensor& dy, const Tensor& x) { return dy * rsqrt_one_minus_square(x); });
}

Tensor acos(const Tensor& x) {
  return autograd::unary_saving_input<functors::Acos>(
      "acos", x, [](const Tensor& dy, const Tensor& x) { return -dy * rsqrt_one_minus_square(x); });
}

Tensor atan(const Tensor& x) {
  return autograd::unary_saving_input<functors::Atan>(
      "atan", x, [](const Tensor& dy, const Tensor& x) { return dy / (square(at_least_f32(x)) + 1); });
}

Tensor atan2(const Tensor& y, const Tensor& x) {
  const OpCall call("atan2", {{"y", y}, {"x", x}});
  Tensor angle = raw::binary<functors::Atan2>(y, x);
  if (Recorder r{"atan2", y, x}) {
    const auto v = r.save(y), u = r.save(x);
    r.record(angle, wrt(y, [u, v](const Tensor& d) { return d * over_squares(u.get(), v.get()); }),
             wrt(x, [u, v](const Tensor& d) { return -d * over_squares(v.get(), u.get()); }));
  }
  return angle;
}

Tensor sinh(const Tensor& x) {
  return autograd::unary_saving_input<functors::Sinh>(
      "sinh", x, [](const Tensor& dy, const Tensor& x) { return dy * cosh(x); });
}

Tensor cosh(const Tensor& x) {
  return autograd::unary_saving_input<functors::Cosh>(
      "cosh", x, [](const Tensor& dy, const Tensor& x) { return dy * sinh(x); });
}

Tensor asinh(const Tensor& x) {
  return autograd::unary_saving_input<functors::Asinh>("asinh", x, [](const Tensor& dy, const Tensor& x) {
    const Tensor v = at_least_f32(x);
    return dy / hypot(v, raw::operand(1, v));
  });
}

Tensor acosh(const Tensor& x) {
  return autograd::unary_saving_input<functors::Acosh>("acosh", x, [](const Tensor& dy, const Tensor& x) {
    const Tensor v = at_least_f32(x);
    return dy * (rsqrt(v - 1) * rsqrt(v + 1));
  });
}

Tensor atanh(const Tensor& x) {
  return autograd::unary_saving_input<functors::Atanh>("atanh", x, [](const Tensor& dy, const Tensor& x) {
    const Tensor v = at_least_f32(x);
    return dy / ((1 - v) * (v + 1));
  });
}

Tensor sinc(const Tensor& x) {
  const OpCall call("sinc", {{"x", x}});
  if (autograd::Casting cast{"sinc"}) return sinc(cast(x));
  if (const Tensor v = at_least_f32(x); !v.is_same(x)) return to(sinc(v), x.dtype());
  // Near 0 the gradient of the quotient suffers from cancellation, so the Taylor series 1 - s/6 + s^2/120
  // with s = (pi x)^2 replaces the quotient.
  const Tensor near = lt(abs(x), x.dtype() == DType::kF64 ? 0x1p-12 : 0x1p-6);
  const Tensor s = square(where(near, x, 0)) * (std::numbers::pi * std::numbers::pi);
  const Tensor angle = where(near, 1, x) * std::numbers::pi;
  return where(near, 1 - s * (1 - s * (1.0 / 20)) * (1.0 / 6), sin(angle) / angle);
}

Tensor deg2rad(const Tensor& x) {
  const OpCall call("deg2rad", {{"x", x}});
  return x * (std::numbers::pi / 180);
}
Tensor rad2deg(const Tensor& x) {
  const OpCall call("rad2deg", {{"x", x}});
  return x * (180 / std::numbers::pi);
}

Tensor erf(const Tensor& x) {
  return autograd::unary_saving_input<functors::Erf>("erf", x, [](const Tensor& dy, const Tensor& x) {
    return dy * (exp(-square(at_least_f32(x))) * (2 * std::numbers::inv_sqrtpi));
  });
}

Tensor erfc(const Tensor& x) {
  return autograd::unary_saving_input<functors::Erfc>("erfc", x, [](const Tensor& dy, const Tensor& x) {
    return dy * (exp(-square(at_least_f32(x))) * (-2 * std::numbers::inv_sqrtpi));
  });
}

Tensor erfinv(const Tensor& x) {
  const OpCall call("erfinv", {{"x", x}});
  if (autograd::Casting cast{"erfinv"}) return erfinv(cast(x));
  if (const Tensor v = at_least_f32(x); !v.is_same(x)) return to(erfinv(v), x.dtype());
  Tensor y = raw::unary<functors::Erfinv>(x);
  if (Recorder r{"erfinv", x})
    r.record(y, wrt(x, [y = r.save_output(y)](const Tensor& dy) {
               return dy * (exp(square(y.get())) * (0.5 / std::numbers::inv_sqrtpi));
             }));
  return y;
}

Tensor lgamma(const Tensor& x) {
  return autograd::unary_saving_input<functors::Lgamma>(
      "lgamma", x, [](const Tensor& dy, const Tensor& x) { return dy * digamma(x); });
}

Tensor digamma(const Tensor& x) {
  const OpCall call("digamma", {{"x", x}});
  if (autograd::Casting cast{"digamma"}) return digamma(cast(x));
  return polygamma(0, x);
}

namespace {

// polygamma without a limit of n: the gradient of polygamma(100, x) needs n = 101.
Tensor digamma_derivative(int64_t n, const Tensor& x) {
  Tensor y = raw::unary<functors::Polygamma>(x, n);
  if (Recorder r{"polygamma", x})
    r.record(
        y, wrt(x, [n, x = r.save(x)](const Tensor& dy) { return dy * digamma_derivative(n + 1, x.get()); }));
  return y;
}

}  // namespace

Tensor polygamma(int64_t n, const Tensor& x) {
  const OpCall call("polygamma", {{"x", x}});
  if (autograd::Casting cast{"polygamma"}) return polygamma(n, cast(x));
  if (n < 0 || n > 100) throw ValueError("polygamma", "expected 0 <= n <= 100, got ", n);
  return digamma_derivative(n, x);
}

}  // namespace gradus
