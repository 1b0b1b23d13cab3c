#include "gradus/autograd/ops/functions.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/elementwise.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/pointwise.h"

namespace gradus {

Tensor tan(const Tensor& x) {
  const OpCall call("tan", {{"x", x}});
  if (autograd::Casting cast{"tan"}) return tan(cast(x));
  Tensor y = raw::unary<functors::Tan>(x);
  if (Recorder r{"tan", x})
    r.record(y, wrt(x, [y = r.save_output(y)](const Tensor& dy) { return dy * (square(y.get()) + 1); }));
  return y;
}

Tensor asin(const Tensor& x) {
  const OpCall call("asin", {{"x", x}});
  if (autograd::Casting cast{"asin"}) return asin(cast(x));
  Tensor y = raw::unary<functors::Asin>(x);
  if (Recorder r{"asin", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return dy * rsqrt(1 - square(x.get())); }));
  return y;
}

Tensor acos(const Tensor& x) {
  const OpCall call("acos", {{"x", x}});
  if (autograd::Casting cast{"acos"}) return acos(cast(x));
  Tensor y = raw::unary<functors::Acos>(x);
  if (Recorder r{"acos", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return -dy * rsqrt(1 - square(x.get())); }));
  return y;
}

Tensor atan(const Tensor& x) {
  const OpCall call("atan", {{"x", x}});
  Tensor y = raw::unary<functors::Atan>(x);
  if (Recorder r{"atan", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return dy / (square(x.get()) + 1); }));
  return y;
}

Tensor sinh(const Tensor& x) {
  const OpCall call("sinh", {{"x", x}});
  if (autograd::Casting cast{"sinh"}) return sinh(cast(x));
  Tensor y = raw::unary<functors::Sinh>(x);
  if (Recorder r{"sinh", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return dy * cosh(x.get()); }));
  return y;
}

Tensor cosh(const Tensor& x) {
  const OpCall call("cosh", {{"x", x}});
  if (autograd::Casting cast{"cosh"}) return cosh(cast(x));
  Tensor y = raw::unary<functors::Cosh>(x);
  if (Recorder r{"cosh", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return dy * sinh(x.get()); }));
  return y;
}

Tensor asinh(const Tensor& x) {
  const OpCall call("asinh", {{"x", x}});
  Tensor y = raw::unary<functors::Asinh>(x);
  if (Recorder r{"asinh", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return dy * rsqrt(square(x.get()) + 1); }));
  return y;
}

Tensor acosh(const Tensor& x) {
  const OpCall call("acosh", {{"x", x}});
  Tensor y = raw::unary<functors::Acosh>(x);
  if (Recorder r{"acosh", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return dy * rsqrt(square(x.get()) - 1); }));
  return y;
}

Tensor atanh(const Tensor& x) {
  const OpCall call("atanh", {{"x", x}});
  Tensor y = raw::unary<functors::Atanh>(x);
  if (Recorder r{"atanh", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return dy / (1 - square(x.get())); }));
  return y;
}

Tensor exp2(const Tensor& x) {
  const OpCall call("exp2", {{"x", x}});
  if (autograd::Casting cast{"exp2"}) return exp2(cast(x));
  Tensor y = raw::unary<functors::Exp2>(x);
  if (Recorder r{"exp2", x})
    r.record(y,
             wrt(x, [y = r.save_output(y)](const Tensor& dy) { return dy * (y.get() * std::numbers::ln2); }));
  return y;
}

Tensor log2(const Tensor& x) {
  const OpCall call("log2", {{"x", x}});
  if (autograd::Casting cast{"log2"}) return log2(cast(x));
  Tensor y = raw::unary<functors::Log2>(x);
  if (Recorder r{"log2", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return dy / (x.get() * std::numbers::ln2); }));
  return y;
}

Tensor log10(const Tensor& x) {
  const OpCall call("log10", {{"x", x}});
  if (autograd::Casting cast{"log10"}) return log10(cast(x));
  Tensor y = raw::unary<functors::Log10>(x);
  if (Recorder r{"log10", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return dy / (x.get() * std::numbers::ln10); }));
  return y;
}

Tensor erfc(const Tensor& x) {
  const OpCall call("erfc", {{"x", x}});
  Tensor y = raw::unary<functors::Erfc>(x);
  if (Recorder r{"erfc", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) {
               return dy * (exp(-square(x.get())) * (-2 * std::numbers::inv_sqrtpi));
             }));
  return y;
}

Tensor erfinv(const Tensor& x) {
  const OpCall call("erfinv", {{"x", x}});
  if (autograd::Casting cast{"erfinv"}) return erfinv(cast(x));
  Tensor y = raw::unary<functors::Erfinv>(x);
  if (Recorder r{"erfinv", x})
    r.record(y, wrt(x, [y = r.save_output(y)](const Tensor& dy) {
               return dy * (exp(square(y.get())) * (0.5 / std::numbers::inv_sqrtpi));
             }));
  return y;
}

Tensor lgamma(const Tensor& x) {
  const OpCall call("lgamma", {{"x", x}});
  if (autograd::Casting cast{"lgamma"}) return lgamma(cast(x));
  Tensor y = raw::unary<functors::Lgamma>(x);
  if (Recorder r{"lgamma", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return dy * digamma(x.get()); }));
  return y;
}

Tensor digamma(const Tensor& x) {
  const OpCall call("digamma", {{"x", x}});
  if (autograd::Casting cast{"digamma"}) return digamma(cast(x));
  return polygamma(0, x);
}

Tensor polygamma(int64_t n, const Tensor& x) {
  const OpCall call("polygamma", {{"x", x}});
  if (autograd::Casting cast{"polygamma"}) return polygamma(n, cast(x));
  if (n < 0 || n > 100) throw ValueError("polygamma", "expected 0 <= n <= 100, given ", n);
  Tensor y = raw::unary<functors::Polygamma>(x, n);
  if (Recorder r{"polygamma", x})
    r.record(y, wrt(x, [n, x = r.save(x)](const Tensor& dy) { return dy * polygamma(n + 1, x.get()); }));
  return y;
}

Tensor atan2(const Tensor& y, const Tensor& x) {
  const OpCall call("atan2", {{"y", y}, {"x", x}});
  Tensor angle = raw::binary<functors::Atan2>(y, x);
  if (Recorder r{"atan2", y, x}) {
    const auto v = r.save(y), u = r.save(x);
    r.record(
        angle,
        wrt(y, [u, v](const Tensor& d) { return d * (u.get() / (square(u.get()) + square(v.get()))); }),
        wrt(x, [u, v](const Tensor& d) { return -d * (v.get() / (square(u.get()) + square(v.get()))); }));
  }
  return angle;
}

Tensor deg2rad(const Tensor& x) {
  const OpCall call("deg2rad", {{"x", x}});
  return x * (std::numbers::pi / 180);
}
Tensor rad2deg(const Tensor& x) {
  const OpCall call("rad2deg", {{"x", x}});
  return x * (180 / std::numbers::pi);
}

Tensor sinc(const Tensor& x) {
  const OpCall call("sinc", {{"x", x}});
  if (autograd::Casting cast{"sinc"}) return sinc(cast(x));
  const Tensor at_zero = eq(x, 0);
  const Tensor angle = where(at_zero, 1, x) * std::numbers::pi;
  // At 0 the first terms of the series, 1 - (pi x)^2 / 6, so that gradients are right there.
  return where(at_zero, 1 - square(x) * (std::numbers::pi * std::numbers::pi / 6), sin(angle) / angle);
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
  if (eps && !(*eps >= 0 && *eps < 0.5)) throw ValueError("logit", "expected 0 <= eps < 1/2, given ", *eps);
  const Tensor p = eps ? clamp(x, *eps, 1 - *eps) : x;
  return log(p / (1 - p));
}

namespace {

// Records a result with a derivative of 0 wherever it exists.
Tensor flat(const char* op, const Tensor& x, Tensor y) {
  if (Recorder r{op, x}) r.record(y, wrt(x, [](const Tensor& dy) { return dy * 0; }));
  return y;
}

}  // namespace

Tensor trunc(const Tensor& x) {
  const OpCall call("trunc", {{"x", x}});
  return flat("trunc", x, raw::unary<functors::Trunc>(x));
}

Tensor round(const Tensor& x, int64_t decimals) {
  const OpCall call("round", {{"x", x}});
  if (decimals == 0 || is_integral(x.dtype())) return round(x);
  const double scale = std::pow(10.0, std::fabs(double(decimals)));
  if (std::isinf(scale)) return decimals > 0 ? x * 1.0 : x * 0.0;      // no number has that many digits
  const Tensor v = x.dtype() == DType::kF64 ? x : to(x, DType::kF32);  // 16-bit floats are rounded once
  return to(decimals > 0 ? round(v * scale) / scale : round(v / scale) * scale, x.dtype());
}

Tensor frac(const Tensor& x) {
  const OpCall call("frac", {{"x", x}});
  return x - trunc(x);
}

Tensor floor_divide(const Tensor& a, const Tensor& b) {
  const OpCall call("floor_divide", {{"a", a}, {"b", b}});
  Tensor y = raw::binary<functors::FloorDivide>(a, b);
  if (Recorder r{"floor_divide", a, b})
    r.record(y, wrt(a, [](const Tensor& dy) { return dy * 0; }),
             wrt(b, [](const Tensor& dy) { return dy * 0; }));
  return y;
}
Tensor floor_divide(const Tensor& a, Number b) {
  const OpCall call("floor_divide", {{"a", a}});
  return floor_divide(a, raw::operand(b, a));
}

Tensor div(const Tensor& a, const Tensor& b, RoundingMode rounding_mode) {
  const OpCall call("div", {{"a", a}, {"b", b}});
  if (rounding_mode == RoundingMode::kNone) return div(a, b);
  if (rounding_mode == RoundingMode::kFloor) return floor_divide(a, b);
  Tensor y = raw::binary<functors::TruncDivide>(a, b);
  if (Recorder r{"div", a, b})
    r.record(y, wrt(a, [](const Tensor& dy) { return dy * 0; }),
             wrt(b, [](const Tensor& dy) { return dy * 0; }));
  return y;
}
Tensor div(const Tensor& a, Number b, RoundingMode rounding_mode) {
  const OpCall call("div", {{"a", a}});
  return div(a, raw::operand(b, a), rounding_mode);
}

Tensor fmod(const Tensor& a, const Tensor& b) {
  const OpCall call("fmod", {{"a", a}, {"b", b}});
  Tensor y = raw::binary<functors::Fmod>(a, b);
  if (Recorder r{"fmod", a, b})
    r.record(
        y, wrt(a, [](Tensor dy) { return dy; }),
        wrt(b, [a = r.save(a), b = r.save(b)](const Tensor& dy) { return -dy * trunc(a.get() / b.get()); }));
  return y;
}
Tensor fmod(const Tensor& a, Number b) {
  const OpCall call("fmod", {{"a", a}});
  return fmod(a, raw::operand(b, a));
}

Tensor copysign(const Tensor& a, const Tensor& b) {
  const OpCall call("copysign", {{"a", a}, {"b", b}});
  Tensor y = raw::binary<functors::Copysign>(a, b);
  if (Recorder r{"copysign", a, b})
    r.record(y,
             wrt(a,
                 [a = r.save(a), b = r.save(b)](const Tensor& dy) {
                   return dy * (sign(a.get()) *
                                raw::binary<functors::Copysign>(raw::operand(1, b.get()), b.get()));
                 }),
             wrt(b, [](const Tensor& dy) { return dy * 0; }));
  return y;
}

Tensor heaviside(const Tensor& x, const Tensor& at_zero) {
  const OpCall call("heaviside", {{"x", x}, {"at_zero", at_zero}});
  Tensor y = raw::binary<functors::Heaviside>(x, at_zero);
  if (Recorder r{"heaviside", x, at_zero})
    r.record(y, wrt(x, [](const Tensor& dy) { return dy * 0; }),
             wrt(at_zero, [x = r.save(x)](const Tensor& dy) { return where(eq(x.get(), 0), dy, 0); }));
  return y;
}

Tensor hypot(const Tensor& a, const Tensor& b) {
  const OpCall call("hypot", {{"a", a}, {"b", b}});
  Tensor y = raw::binary<functors::Hypot>(a, b);
  if (Recorder r{"hypot", a, b}) {
    const auto out = r.save_output(y);
    r.record(y, wrt(a, [a = r.save(a), out](const Tensor& dy) { return dy * (a.get() / out.get()); }),
             wrt(b, [b = r.save(b), out](const Tensor& dy) { return dy * (b.get() / out.get()); }));
  }
  return y;
}

Tensor add(const Tensor& a, const Tensor& b, Number alpha) {
  const OpCall call("add", {{"a", a}, {"b", b}});
  Tensor y = raw::add(a, b, alpha);
  if (Recorder r{"add", a, b})
    r.record(y, wrt(a, [](Tensor dy) { return dy; }),
             wrt(b, [alpha](const Tensor& dy) { return dy * alpha; }));
  return y;
}
Tensor sub(const Tensor& a, const Tensor& b, Number alpha) {
  const OpCall call("sub", {{"a", a}, {"b", b}});
  return add(a, b, -alpha);
}
Tensor add(const Tensor& a, Number b, Number alpha) {
  const OpCall call("add", {{"a", a}});
  return add(a, raw::operand(b, a), alpha);
}
Tensor sub(const Tensor& a, Number b, Number alpha) {
  const OpCall call("sub", {{"a", a}});
  return add(a, raw::operand(b, a), -alpha);
}

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  const OpCall call("addcmul", {{"x", x}, {"a", a}, {"b", b}});
  Tensor y = raw::addcmul(x, a, b, value);
  if (Recorder r{"addcmul", x, a, b})
    r.record(y, wrt(x, [](Tensor dy) { return dy; }),
             wrt(a, [b = r.save(b), value](const Tensor& dy) { return dy * b.get() * value; }),
             wrt(b, [a = r.save(a), value](const Tensor& dy) { return dy * a.get() * value; }));
  return y;
}

Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  const OpCall call("addcdiv", {{"x", x}, {"a", a}, {"b", b}});
  Tensor y = raw::addcdiv(x, a, b, value);
  if (Recorder r{"addcdiv", x, a, b})
    r.record(y, wrt(x, [](Tensor dy) { return dy; }),
             wrt(a, [b = r.save(b), value](const Tensor& dy) { return dy / b.get() * value; }),
             wrt(b, [a = r.save(a), b = r.save(b), value](const Tensor& dy) {
               return dy * (a.get() / square(b.get())) * -value;
             }));
  return y;
}

Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high) {
  const OpCall call("clamp", {{"x", x}});
  if (!low.defined() && !high.defined()) throw ValueError("clamp", "both bounds are undefined");
  const Tensor raised = low.defined() ? maximum(x, low) : x;
  return high.defined() ? minimum(raised, high) : raised;
}

Tensor nan_to_num(const Tensor& x, NanToNumOptions options) {
  const OpCall call("nan_to_num", {{"x", x}});
  const double largest = [&] {
    switch (x.dtype()) {
      case DType::kF64:
        return std::numeric_limits<double>::max();
      case DType::kF16:
        return 65504.0;
      case DType::kBF16:
        return 3.3895313892515355e38;
      default:
        return double(std::numeric_limits<float>::max());
    }
  }();
  Tensor y = raw::unary<functors::NanToNum>(x, options.nan, options.posinf.value_or(largest),
                                            options.neginf.value_or(-largest));
  if (Recorder r{"nan_to_num", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return where(isfinite(x.get()), dy, 0); }));
  return y;
}

Tensor isinf(const Tensor& x) {
  const OpCall call("isinf", {{"x", x}});
  return raw::unary<functors::IsInf>(x);
}
Tensor isposinf(const Tensor& x) {
  const OpCall call("isposinf", {{"x", x}});
  return logical_and(isinf(x), gt(x, 0));
}
Tensor isneginf(const Tensor& x) {
  const OpCall call("isneginf", {{"x", x}});
  return logical_and(isinf(x), lt(x, 0));
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  const OpCall call("logical_xor", {{"a", a}, {"b", b}});
  return raw::ne(raw::to(a, DType::kBool), raw::to(b, DType::kBool));
}

Tensor isclose(const Tensor& a_in, const Tensor& b_in, Closeness options) {
  const OpCall call("isclose", {{"a", a_in}, {"b", b_in}});
  const Tensor a = detach(a_in), b = detach(b_in);
  if (!(options.rtol >= 0) || !(options.atol >= 0))
    throw ValueError("isclose", "expected rtol and atol >= 0, given ", options.rtol, " and ", options.atol);
  Tensor close = eq(a, b);
  if (options.equal_nan) close = logical_or(close, logical_and(isnan(a), isnan(b)));
  if (is_integral(a.dtype()) && is_integral(b.dtype()) && options.rtol == 0 && options.atol < 1) return close;
  const Tensor off = abs(a - b);
  return logical_or(close, logical_and(isfinite(off), le(off, abs(b) * options.rtol + options.atol)));
}
bool allclose(const Tensor& a, const Tensor& b, Closeness options) {
  const OpCall call("allclose", {{"a", a}, {"b", b}});
  return all(isclose(a, b, options)).item<bool>();
}
bool equal(const Tensor& a, const Tensor& b) {
  const OpCall call("equal", {{"a", a}, {"b", b}});
  return a.shape() == b.shape() && all(eq(detach(a), detach(b))).item<bool>();
}

Tensor bitwise_and(const Tensor& a, const Tensor& b) {
  const OpCall call("bitwise_and", {{"a", a}, {"b", b}});
  return raw::binary<functors::BitwiseAnd>(a, b);
}
Tensor bitwise_or(const Tensor& a, const Tensor& b) {
  const OpCall call("bitwise_or", {{"a", a}, {"b", b}});
  return raw::binary<functors::BitwiseOr>(a, b);
}
Tensor bitwise_xor(const Tensor& a, const Tensor& b) {
  const OpCall call("bitwise_xor", {{"a", a}, {"b", b}});
  return raw::binary<functors::BitwiseXor>(a, b);
}
Tensor bitwise_not(const Tensor& x) {
  const OpCall call("bitwise_not", {{"x", x}});
  return raw::unary<functors::BitwiseNot>(x);
}
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b) {
  const OpCall call("bitwise_left_shift", {{"a", a}, {"b", b}});
  return raw::binary<functors::ShiftLeft>(a, b);
}
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b) {
  const OpCall call("bitwise_right_shift", {{"a", a}, {"b", b}});
  return raw::binary<functors::ShiftRight>(a, b);
}

}  // namespace gradus
