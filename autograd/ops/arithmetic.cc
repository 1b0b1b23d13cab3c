// Element-wise arithmetic with backward rules: each op computes y by a kernel of namespace raw, which records
// nothing, and records one rule dy -> gradient per input in the autograd graph, built from differentiable
// ops. The engine sums a rule's gradient to the input's shape and casts it to the input's dtype, so rules
// ignore broadcasting. Overloads for temporaries write the result into the operand's buffer, if can_reuse()
// allows it.
#include "gradus/autograd/ops/arithmetic.h"

#include <cmath>
#include <functional>
#include <type_traits>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/math.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/unary.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus {
namespace {

using autograd::at_least_f32;

// Returns whether the result of an op on x and a number may reuse x's buffer. autograd::may_reuse is false if
// a rule has saved x, because x is then not the only owner.
bool can_reuse(const Tensor& x) { return x.defined() && is_floating(x.dtype()) && autograd::may_reuse(x); }
// Returns whether x keeps its shape when broadcast with an operand of shape `other`.
bool covers(const Shape& x, const Shape& other) {
  if (other.size() > x.size()) return false;
  for (int d = 1; d <= other.size(); ++d)
    if (other[other.size() - d] != x[x.size() - d] && other[other.size() - d] != 1) return false;
  return true;
}

// The same for an op on x and another tensor. Also requires that the result has x's shape, dtype and layout.
bool can_reuse(const Tensor& x, const Tensor& other) {
  return can_reuse(x) && other.defined() && other.device() == x.device() &&
         raw::result_dtype(x, other) == x.dtype() && covers(x.shape(), other.shape()) &&
         (x.is_channels_last() || !other.is_channels_last());
}

// The second operand of an op, as functions take it: a tensor or a number.
template <class Y> using Operand = std::conditional_t<std::is_same_v<Y, Tensor>, const Tensor&, Number>;

// Returns op(a, b), computed by `in_place` in the buffer of a if can_reuse() allows it.
template <class Y>
Tensor reusing(const Tensor& a, const Y& b, Tensor (*op)(const Tensor&, Operand<Y>),
               void (*in_place)(const Tensor&, Operand<Y>)) {
  if constexpr (std::is_same_v<Y, Tensor>) {
    if (!can_reuse(a, b)) return op(a, b);
  } else {
    if (!can_reuse(a)) return op(a, b);
  }
  Tensor y = detach(a);
  in_place(y, b);
  return y;
}

// Records y as a function of a and b, with rules that save no tensors, and returns y.
template <class RuleA, class RuleB>
Tensor record_binary(const char* op, Tensor y, const Tensor& a, const Tensor& b, RuleA rule_a, RuleB rule_b) {
  if (Recorder r{op, a, b}) r.record(y, wrt(a, rule_a), wrt(b, rule_b));
  return y;
}

// Rules: derivatives 1, -1 and 0.
Tensor same(Tensor dy) { return dy; }
Tensor negated(const Tensor& dy) { return -dy; }
Tensor none(const Tensor& dy) { return dy * 0; }

// Records y as a piecewise constant function of xs, whose derivative is 0.
template <class... X> Tensor record_piecewise_constant(const char* op, Tensor y, const X&... xs) {
  if (Recorder r{op, xs...}) r.record(y, wrt(xs, &none)...);
  return y;
}

}  // namespace

Tensor add(Tensor&& temporary, const Tensor& b) {
  const OpCall call("add", {{"a", temporary}, {"b", b}});
  const Tensor a =
      std::move(temporary);  // released on return, so the result becomes the only owner of the buffer
  return record_binary("add", reusing(a, b, raw::add, raw::add_), a, b, &same, &same);
}

Tensor add(Tensor&& temporary, Number b) {
  const OpCall call("add", {{"a", temporary}});
  const Tensor a = std::move(temporary);
  return autograd::record_unary("add", a, reusing(a, b, raw::add, raw::add_), &same);
}

Tensor sub(Tensor&& temporary, const Tensor& b) {
  const OpCall call("sub", {{"a", temporary}, {"b", b}});
  const Tensor a = std::move(temporary);
  return record_binary("sub", reusing(a, b, raw::sub, raw::sub_), a, b, &same, &negated);
}

Tensor sub(Tensor&& temporary, Number b) {
  const OpCall call("sub", {{"a", temporary}});
  const Tensor a = std::move(temporary);
  return autograd::record_unary("sub", a, reusing(a, b, raw::sub, raw::sub_), &same);
}

Tensor mul(Tensor&& temporary, Number b) {
  const OpCall call("mul", {{"a", temporary}});
  const Tensor a = std::move(temporary);
  return autograd::record_unary("mul", a, reusing(a, b, raw::mul, raw::mul_),
                                [b](const Tensor& dy) { return dy * b; });
}

Tensor add(const Tensor& a, const Tensor& b) {
  const OpCall call("add", {{"a", a}, {"b", b}});
  return record_binary("add", raw::add(a, b), a, b, &same, &same);
}

Tensor add(const Tensor& a, Number b) {
  const OpCall call("add", {{"a", a}});
  return autograd::record_unary("add", a, raw::add(a, b), &same);
}
Tensor add(Number a, const Tensor& b) {
  const OpCall call("add", {{"b", b}});
  return add(b, a);
}

Tensor sub(const Tensor& a, const Tensor& b) {
  const OpCall call("sub", {{"a", a}, {"b", b}});
  return record_binary("sub", raw::sub(a, b), a, b, &same, &negated);
}

Tensor sub(const Tensor& a, Number b) {
  const OpCall call("sub", {{"a", a}});
  return autograd::record_unary("sub", a, raw::sub(a, b), &same);
}

Tensor sub(Number a, const Tensor& b) {
  const OpCall call("sub", {{"b", b}});
  return autograd::record_unary("sub", b, raw::sub(a, b), &negated);
}

Tensor mul(const Tensor& a, const Tensor& b) {
  const OpCall call("mul", {{"a", a}, {"b", b}});
  Tensor y = raw::mul(a, b);
  if (Recorder r{"mul", a, b})
    r.record(y, wrt(a, [b = r.save(b)](const Tensor& dy) { return dy * b.get(); }),
             wrt(b, [a = r.save(a)](const Tensor& dy) { return dy * a.get(); }));
  return y;
}

Tensor mul(const Tensor& a, Number b) {
  const OpCall call("mul", {{"a", a}});
  return autograd::record_unary("mul", a, raw::mul(a, b), [b](const Tensor& dy) { return dy * b; });
}
Tensor mul(Number a, const Tensor& b) {
  const OpCall call("mul", {{"b", b}});
  return mul(b, a);
}

Tensor div(const Tensor& a, const Tensor& b) {
  const OpCall call("div", {{"a", a}, {"b", b}});
  Tensor y = raw::div(a, b);
  if (Recorder r{"div", a, b})
    r.record(y, wrt(a, [b = r.save(b)](const Tensor& dy) { return dy / b.get(); }),
             wrt(b, [b = r.save(b), y = r.save_output(y)](const Tensor& dy) {
               return -dy * (y.get() / b.get());
             }));
  return y;
}

Tensor div(const Tensor& a, Number b) {
  const OpCall call("div", {{"a", a}});
  return autograd::record_unary("div", a, raw::div(a, b), [b](const Tensor& dy) { return dy / b; });
}

Tensor div(Number a, const Tensor& b) {
  const OpCall call("div", {{"b", b}});
  Tensor y = raw::div(a, b);
  if (Recorder r{"div", b})
    r.record(y, wrt(b, [b = r.save(b), y = r.save_output(y)](const Tensor& dy) {
               return -dy * (y.get() / b.get());
             }));
  return y;
}

Tensor pow(const Tensor& a, const Tensor& b) {
  const OpCall call("pow", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"pow"}) return pow(cast(a), cast(b));
  Tensor y = raw::pow(a, b);
  if (Recorder r{"pow", a, b})
    r.record(y,
             wrt(a,
                 [a = r.save(a), b = r.save(b)](const Tensor& dy) {
                   const Tensor e = at_least_f32(b.get()), da = dy * (e * pow(at_least_f32(a.get()), e - 1));
                   return where(eq(e, 0), 0, da);  // for a = b = 0 the formula gives 0 * infinity = NaN
                 }),
             wrt(b, [a = r.save(a), b = r.save(b), y = r.save_output(y)](const Tensor& dy) {
               const Tensor vanishes = logical_and(eq(a.get(), 0), ge(b.get(), 0));
               const Tensor base = at_least_f32(where(vanishes, 1, a.get()));
               return where(vanishes, 0, dy * (y.get() * log(base)));
             }));
  return y;
}

Tensor pow(const Tensor& a, Number b) {
  const OpCall call("pow", {{"a", a}});
  if (autograd::Casting cast{"pow"}) return pow(cast(a), b);
  check_fits("pow", b, raw::result_dtype(a, b));
  const double n = b.to_double();
  if (raw::result_dtype(a, b) == DType::kU8 && n < 0) return to(eq(a, 1), DType::kU8);  // rounded toward 0
  const bool squares = n == 2 && raw::result_dtype(a, b) == a.dtype();
  Tensor y = squares ? raw::unary<functors::Square>(a) : raw::pow(a, b);
  if (Recorder r{"pow", a})
    r.record(
        y, wrt(a, [a = r.save(a), n](const Tensor& dy) {
          if (n == 0) return dy * 0;
          return n == 1 ? dy : n == 2 ? dy * (a.get() * 2) : dy * (pow(at_least_f32(a.get()), n - 1) * n);
        }));
  return y;
}

Tensor pow(Number a, const Tensor& b) {
  const OpCall call("pow", {{"b", b}});
  if (autograd::Casting cast{"pow"}) return pow(a, cast(b));
  Tensor y = raw::pow(a, b);
  if (Recorder r{"pow", b})
    r.record(y, wrt(b, [a, b = r.save(b), y = r.save_output(y)](const Tensor& dy) {
               const Tensor db = dy * (y.get() * std::log(a.to_double()));
               return a.to_double() == 0 ? where(ge(b.get(), 0), 0, db) : db;
             }));
  return y;
}

Tensor remainder(const Tensor& a, const Tensor& b) {
  const OpCall call("remainder", {{"a", a}, {"b", b}});
  Tensor y = raw::remainder(a, b);
  if (Recorder r{"remainder", a, b})
    r.record(y, wrt(a, &same), wrt(b, [a = r.save(a), b = r.save(b)](const Tensor& dy) {
               return -dy * floor_divide(a.get(), b.get());
             }));
  return y;
}

Tensor remainder(const Tensor& a, Number b) {
  const OpCall call("remainder", {{"a", a}});
  return autograd::record_unary("remainder", a, raw::remainder(a, b), &same);
}

Tensor fmod(const Tensor& a, const Tensor& b) {
  const OpCall call("fmod", {{"a", a}, {"b", b}});
  Tensor y = raw::binary<functors::Fmod>(a, b);
  if (Recorder r{"fmod", a, b})
    r.record(y, wrt(a, &same), wrt(b, [a = r.save(a), b = r.save(b)](const Tensor& dy) {
               return -dy * div(a.get(), b.get(), RoundingMode::kTrunc);
             }));
  return y;
}
Tensor fmod(const Tensor& a, Number b) {
  const OpCall call("fmod", {{"a", a}});
  return fmod(a, raw::operand(b, a));
}

Tensor floor_divide(const Tensor& a, const Tensor& b) {
  const OpCall call("floor_divide", {{"a", a}, {"b", b}});
  return record_piecewise_constant("floor_divide", raw::binary<functors::FloorDivide>(a, b), a, b);
}
Tensor floor_divide(const Tensor& a, Number b) {
  const OpCall call("floor_divide", {{"a", a}});
  return floor_divide(a, raw::operand(b, a));
}

Tensor div(const Tensor& a, const Tensor& b, RoundingMode rounding_mode) {
  const OpCall call("div", {{"a", a}, {"b", b}});
  if (rounding_mode == RoundingMode::kNone) return div(a, b);
  if (rounding_mode == RoundingMode::kFloor) return floor_divide(a, b);
  return record_piecewise_constant("div", raw::binary<functors::TruncDivide>(a, b), a, b);
}
Tensor div(const Tensor& a, Number b, RoundingMode rounding_mode) {
  const OpCall call("div", {{"a", a}});
  return div(a, raw::operand(b, a), rounding_mode);
}

namespace {

// Returns dy times the derivative of max(a, b), or min(a, b), with respect to a: 0 where the result is b, 1/2 where
// a = b, else 1. NaN operands give 1.
template <class B> Tensor extremum_grad(const Tensor& dy, const Tensor& a, const B& b, bool is_max) {
  const Tensor loses = is_max ? lt(a, b) : gt(a, b), does_not_win = is_max ? le(a, b) : ge(a, b);
  return dy * ((to(loses, dy.dtype()) + to(does_not_win, dy.dtype())) * -0.5 + 1);
}

Tensor extremum(const char* op, const Tensor& a, const Tensor& b, bool is_max) {
  const OpCall call(op, {{"a", a}, {"b", b}});
  Tensor y = is_max ? raw::maximum(a, b) : raw::minimum(a, b);
  if (Recorder r{op, a, b}) {
    const auto u = r.save(a), v = r.save(b);
    r.record(y, wrt(a, [=](const Tensor& dy) { return extremum_grad(dy, u.get(), v.get(), is_max); }),
             wrt(b, [=](const Tensor& dy) { return extremum_grad(dy, v.get(), u.get(), is_max); }));
  }
  return y;
}
Tensor extremum(const char* op, const Tensor& a, Number b, bool is_max) {
  const OpCall call(op, {{"a", a}});
  Tensor y = is_max ? raw::maximum(a, b) : raw::minimum(a, b);
  if (Recorder r{op, a})
    r.record(y, wrt(a, [a = r.save(a), b, is_max](const Tensor& dy) {
               return extremum_grad(dy, a.get(), b, is_max);
             }));
  return y;
}

}  // namespace

Tensor maximum(const Tensor& a, const Tensor& b) { return extremum("maximum", a, b, true); }
Tensor maximum(const Tensor& a, Number b) { return extremum("maximum", a, b, true); }
Tensor minimum(const Tensor& a, const Tensor& b) { return extremum("minimum", a, b, false); }
Tensor minimum(const Tensor& a, Number b) { return extremum("minimum", a, b, false); }

Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) {
  const OpCall call("lerp", {{"a", a}, {"b", b}, {"weight", weight}});
  Tensor y = raw::lerp(a, b, weight);
  if (Recorder r{"lerp", a, b, weight})
    r.record(
        y, wrt(a, [w = r.save(weight)](const Tensor& dy) { return dy * (1 - w.get()); }),
        wrt(b, [w = r.save(weight)](const Tensor& dy) { return dy * w.get(); }),
        wrt(weight, [a = r.save(a), b = r.save(b)](const Tensor& dy) { return dy * (b.get() - a.get()); }));
  return y;
}

Tensor lerp(const Tensor& a, const Tensor& b, double weight) {
  const OpCall call("lerp", {{"a", a}, {"b", b}});
  return record_binary(
      "lerp", raw::lerp(a, b, weight), a, b, [weight](const Tensor& dy) { return dy * (1 - weight); },
      [weight](const Tensor& dy) { return dy * weight; });
}

Tensor add(const Tensor& a, const Tensor& b, Number alpha) {
  const OpCall call("add", {{"a", a}, {"b", b}});
  return record_binary("add", raw::add(a, b, alpha), a, b, &same,
                       [alpha](const Tensor& dy) { return dy * alpha; });
}
Tensor add(const Tensor& a, Number b, Number alpha) {
  const OpCall call("add", {{"a", a}});
  return add(a, raw::operand(b, a), alpha);
}
Tensor sub(const Tensor& a, const Tensor& b, Number alpha) {
  const OpCall call("sub", {{"a", a}, {"b", b}});
  return add(a, b, -alpha);
}
Tensor sub(const Tensor& a, Number b, Number alpha) {
  const OpCall call("sub", {{"a", a}});
  return add(a, raw::operand(b, a), -alpha);
}

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  const OpCall call("addcmul", {{"x", x}, {"a", a}, {"b", b}});
  Tensor y = raw::addcmul(x, a, b, value);
  if (Recorder r{"addcmul", x, a, b})
    r.record(y, wrt(x, &same),
             wrt(a, [b = r.save(b), value](const Tensor& dy) { return dy * b.get() * value; }),
             wrt(b, [a = r.save(a), value](const Tensor& dy) { return dy * a.get() * value; }));
  return y;
}

Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  const OpCall call("addcdiv", {{"x", x}, {"a", a}, {"b", b}});
  Tensor y = raw::addcdiv(x, a, b, value);
  if (Recorder r{"addcdiv", x, a, b})
    r.record(y, wrt(x, &same),
             wrt(a, [b = r.save(b), value](const Tensor& dy) { return dy / b.get() * value; }),
             wrt(b, [a = r.save(a), b = r.save(b), value](const Tensor& dy) {
               return dy * (a.get() / square(b.get())) * -value;
             }));
  return y;
}

namespace {

// Values of omitted bounds, which clamp nothing.
constexpr Number kNoLow = -INFINITY, kNoHigh = INFINITY;

// Returns the dtype of clamp(x, low, high): x's dtype promoted by the bounds that are present.
DType clamped_dtype(const Tensor& x, const std::optional<Number>& low, const std::optional<Number>& high) {
  DType t = x.dtype();
  for (const std::optional<Number>& n : {low, high})
    if (n) t = promote(t, raw::result_dtype(x, *n));
  return t;
}

}  // namespace

Tensor clamp(const Tensor& x, std::optional<Number> low, std::optional<Number> high) {
  const OpCall call("clamp", {{"x", x}});
  if (const DType t = clamped_dtype(x, low, high); t != x.dtype()) return clamp(raw::to(x, t), low, high);
  const Number l = low.value_or(kNoLow), h = high.value_or(kNoHigh);
  Tensor y = raw::clamp(x, l, h);
  if (Recorder r{"clamp", x})
    r.record(y, wrt(x, [x = r.save(x), l, h](Tensor dy) {
               return clamp_backward(std::move(dy), x.get(), l.to_double(), h.to_double());
             }));
  return y;
}

Tensor clamp_backward(Tensor dy, const Tensor& x, double low, double high) {
  const OpCall call("clamp_backward", {{"dy", dy}, {"x", x}});
  Tensor dx = raw::backward<functors::ClampBackward>(dy, x, autograd::try_reuse(dy, x), low, high);
  if (Recorder r{"clamp_backward", dy})
    r.record(dx, wrt(dy, [x = r.save(x), low, high](Tensor ddx) {
               return clamp_backward(std::move(ddx), x.get(), low, high);
             }));
  return dx;
}

Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high) {
  const OpCall call("clamp", {{"x", x}});
  if (!low.defined() && !high.defined()) throw ValueError("clamp", "both bounds are undefined");
  const Tensor raised = low.defined() ? maximum(x, low) : x;
  return high.defined() ? minimum(raised, high) : raised;
}

Tensor neg(const Tensor& x) {
  const OpCall call("neg", {{"x", x}});
  return autograd::record_unary("neg", x, raw::unary<functors::Neg>(x), &negated);
}

Tensor abs(const Tensor& x) {
  return autograd::unary_saving_input<functors::Abs>(
      "abs", x, [](const Tensor& dy, const Tensor& x) { return dy * sign(x); });
}

Tensor square(const Tensor& x) {
  return autograd::unary_saving_input<functors::Square>(
      "square", x, [](const Tensor& dy, const Tensor& x) { return dy * (x * 2); });
}

Tensor sqrt(const Tensor& x) {
  return autograd::unary_saving_output<functors::Sqrt>(
      "sqrt", x, [](const Tensor& dy, const Tensor& y) { return dy / (y * 2); });
}

Tensor rsqrt(const Tensor& x) {
  return autograd::unary_saving_output<functors::Rsqrt>("rsqrt", x, [](const Tensor& dy, const Tensor& y) {
    const Tensor v = at_least_f32(y);
    return dy * (square(v) * v * -0.5);
  });
}

Tensor reciprocal(const Tensor& x) {
  return autograd::unary_saving_output<functors::Reciprocal>(
      "reciprocal", x, [](const Tensor& dy, const Tensor& y) { return -dy * square(at_least_f32(y)); });
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
             wrt(b, &none));
  return y;
}

Tensor heaviside(const Tensor& x, const Tensor& at_zero) {
  const OpCall call("heaviside", {{"x", x}, {"at_zero", at_zero}});
  Tensor y = raw::binary<functors::Heaviside>(x, at_zero);
  if (Recorder r{"heaviside", x, at_zero})
    r.record(y, wrt(x, &none),
             wrt(at_zero, [x = r.save(x)](const Tensor& dy) { return where(eq(x.get(), 0), dy, 0); }));
  return y;
}

namespace {

template <class F> Tensor piecewise_constant(const char* op, const Tensor& x) {
  const OpCall call(op, {{"x", x}});
  return record_piecewise_constant(op, raw::unary<F>(x), x);
}

}  // namespace

Tensor sign(const Tensor& x) { return piecewise_constant<functors::Sign>("sign", x); }
Tensor floor(const Tensor& x) { return piecewise_constant<functors::Floor>("floor", x); }
Tensor ceil(const Tensor& x) { return piecewise_constant<functors::Ceil>("ceil", x); }
Tensor round(const Tensor& x) { return piecewise_constant<functors::Round>("round", x); }

Tensor round(const Tensor& x, int64_t decimals) {
  const OpCall call("round", {{"x", x}});
  if (decimals == 0 || is_integral(x.dtype())) return round(x);
  const double scale = std::pow(10.0, std::fabs(double(decimals)));
  if (std::isinf(scale)) return decimals > 0 ? x * 1.0 : x * 0.0;      // no number has that many digits
  const Tensor v = x.dtype() == DType::kF64 ? x : to(x, DType::kF32);  // 16-bit floats are rounded once
  return to(decimals > 0 ? round(v * scale) / scale : round(v / scale) * scale, x.dtype());
}

Tensor trunc(const Tensor& x) { return piecewise_constant<functors::Trunc>("trunc", x); }

Tensor frac(const Tensor& x) {
  const OpCall call("frac", {{"x", x}});
  return x - trunc(x);
}

namespace {

// Runs the in-place op `write` on x with an operand y, a tensor or a number, and further arguments. In-place ops
// record nothing.
// Errors: StateError if an open recording follows x.
template <class Y, class... More>
void write_in_place(const char* op, const Tensor& x, const Y& y,
                    void (*write)(const Tensor&, Operand<Y>, std::type_identity_t<More>...), More... more) {
  const OpCall call(op, {{"x", x}});
  if constexpr (std::is_same_v<Y, Tensor>) const OpCall checks_operand(op, {{"y", y}});
  autograd::check_in_place(op, x);
  write(x, y, more...);
}

}  // namespace

void add_(const Tensor& x, const Tensor& y) { write_in_place("add_", x, y, raw::add_); }
void add_(const Tensor& x, const Tensor& y, Number alpha) { write_in_place("add_", x, y, raw::add_, alpha); }
void add_(const Tensor& x, Number y) { write_in_place("add_", x, y, raw::add_); }
void sub_(const Tensor& x, const Tensor& y) { write_in_place("sub_", x, y, raw::sub_); }
void sub_(const Tensor& x, Number y) { write_in_place("sub_", x, y, raw::sub_); }
void mul_(const Tensor& x, const Tensor& y) { write_in_place("mul_", x, y, raw::mul_); }
void mul_(const Tensor& x, Number y) { write_in_place("mul_", x, y, raw::mul_); }
void div_(const Tensor& x, const Tensor& y) { write_in_place("div_", x, y, raw::div_); }
void div_(const Tensor& x, Number y) { write_in_place("div_", x, y, raw::div_); }
void lerp_(const Tensor& x, const Tensor& y, double weight) {
  write_in_place("lerp_", x, y, raw::lerp_, weight);
}
void clamp_(const Tensor& x, std::optional<Number> low, std::optional<Number> high) {
  const OpCall call("clamp_", {{"x", x}});
  autograd::check_in_place("clamp_", x);
  if (const DType t = clamped_dtype(x, low, high); t != x.dtype())
    throw DTypeError("clamp_", "a result with ", t, " does not fit into ", describe(x), " in place");
  raw::clamp_(x, low.value_or(kNoLow), high.value_or(kNoHigh));
}

namespace {

// Computes x op= y: in place, or, when an open recording follows an operand, as a new recorded tensor that is
// assigned to the handle x; other handles then keep the old values.
template <class Y, class Op>
Tensor& assign_or_update(const char* name, Tensor& x, const Y& y, Op op,
                         void (*in_place)(const Tensor&, Operand<Y>)) {
  bool recorded = x.defined() && autograd::is_tracked(x);
  if constexpr (std::is_same_v<Y, Tensor>) recorded = recorded || (y.defined() && autograd::is_tracked(y));
  if (!recorded) return in_place(x, y), x;
  const OpCall call(name, {{"x", x}});
  autograd::check_not_leaf(name, x);
  const Tensor value = op(x, y);
  if (value.shape() != x.shape())
    throw ShapeError(name, "operand does not broadcast to x ", describe(x), ": the result is ",
                     describe(value));
  if (is_floating(value.dtype()) != is_floating(x.dtype()))
    throw DTypeError(name, "a result with ", value.dtype(), " does not fit into ", describe(x), " in place");
  return x = to(value, x.dtype());
}

}  // namespace

Tensor& operator+=(Tensor& x, const Tensor& y) { return assign_or_update("add_", x, y, std::plus<>(), add_); }
Tensor& operator-=(Tensor& x, const Tensor& y) {
  return assign_or_update("sub_", x, y, std::minus<>(), sub_);
}
Tensor& operator*=(Tensor& x, const Tensor& y) {
  return assign_or_update("mul_", x, y, std::multiplies<>(), mul_);
}
Tensor& operator/=(Tensor& x, const Tensor& y) {
  return assign_or_update("div_", x, y, std::divides<>(), div_);
}
Tensor& operator+=(Tensor& x, Number y) { return assign_or_update("add_", x, y, std::plus<>(), add_); }
Tensor& operator-=(Tensor& x, Number y) { return assign_or_update("sub_", x, y, std::minus<>(), sub_); }
Tensor& operator*=(Tensor& x, Number y) { return assign_or_update("mul_", x, y, std::multiplies<>(), mul_); }
Tensor& operator/=(Tensor& x, Number y) { return assign_or_update("div_", x, y, std::divides<>(), div_); }

}  // namespace gradus
