#include "gradus/tensor/ops/elementwise.h"

#include <cmath>
#include <limits>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/elementwise_functors.h"
#include "gradus/tensor/ops/elementwise_result.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

using namespace functors;  // NOLINT

template <class F>
constexpr bool only_floats = !F::template accepts<int64_t> && !F::template accepts<bool>;

// The dtype of an op's result when its operands promote to t.
// Errors: DTypeError where F does not accept t.
template <class F>
DType check(const char* op, DType t, const Tensor& x) {
  if constexpr (only_floats<F>) {
    if (!is_floating(t)) t = get_default_dtype();
  } else if constexpr (!F::template accepts<bool>) {
    if (t == DType::kBool) throw DTypeError(op, "is not defined for bool: ", describe(x));
  }
  return t;
}

template <class F, class Slot, class... P>
Tensor unary(const char* op, const Slot& slot, const Tensor& x, P... parameters) {
  Tensor y = empty_like(x, check<F>(op, x.dtype(), x));
  slot(y, x, parameters...);
  return y;
}

template <class F, class Slot, class... P>
Tensor binary(const char* op, const Slot& slot, const Tensor& a, const Tensor& b, P... parameters) {
  Tensor y = empty_result(op, check<F>(op, result_dtype(a, b), a), {&a, &b});
  slot(y, a, b, parameters...);
  return y;
}

// The result is bool, whatever the operands are.
Tensor predicate(const UnarySlot& slot, const Tensor& x) {
  Tensor y = empty_like(x, DType::kBool);
  slot(y, x);
  return y;
}
Tensor predicate(const char* op, const BinarySlot& slot, const Tensor& a, const Tensor& b) {
  Tensor y = empty_result(op, DType::kBool, {&a, &b});
  slot(y, a, b);
  return y;
}

// A fused gradient: dy's dtype; the result goes to `out` where given.
template <class Slot, class... P>
Tensor backward(const char* op, const Slot& slot, const Tensor& dy, const Tensor& x, const Tensor& out,
                P... parameters) {
  check<OnFloats>(op, dy.dtype(), dy);
  if (!is_floating(dy.dtype()) || !is_floating(x.dtype()))
    throw DTypeError(op, "expected floating-point tensors, given dy ", describe(dy), ", x ", describe(x));
  Tensor dx = out ? out : empty_result(op, dy.dtype(), {&dy, &x});
  slot(dx, dy, x, parameters...);
  if (out) out.storage()->bump_version();
  return dx;
}

template <class F, class Slot, class... P>
void in_place(const char* op, const Slot& slot, const Tensor& dst, P... parameters) {
  if (only_floats<F> && !is_floating(dst.dtype()))
    throw DTypeError(op, "expected a floating-point destination, given ", describe(dst));
  check<F>(op, dst.dtype(), dst);
  check_writable(op, dst);
  slot(dst, parameters...);
  dst.storage()->bump_version();
}

void check_integral(const char* op, const Tensor& x) {
  if (!is_integral(x.dtype())) throw DTypeError(op, "expected integers or bool, given ", describe(x));
}

Tensor bitwise(const char* op, const BinarySlot& slot, const Tensor& a, const Tensor& b) {
  check_integral(op, a), check_integral(op, b);
  Tensor y = empty_result(op, result_dtype(a, b), {&a, &b});
  slot(y, a, b);
  return y;
}

// Integers are multiplied by integers.
void check_factor(const char* op, DType t, Number alpha) {
  if (is_integral(t) && alpha.is_floating())
    throw DTypeError(op, "alpha must be an integer for ", t, ", given ", alpha, ", a floating-point number");
}

// An integer is neither raised nor lowered to a number that its type cannot hold.
void check_bounds(const char* op, DType t, Number low, Number high) {
  if (std::isnan(low.to_double()) || std::isnan(high.to_double()))
    throw ValueError(op, "bounds are ", low, " and ", high);
  dispatch_all(t, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      const bool above = low.is_floating() ? low.to_double() >= std::ldexp(1.0, Limits::digits)
                                           : low.integer() > Limits::max();
      const bool below =
          high.is_floating() ? high.to_double() < double(Limits::min()) : high.integer() < Limits::min();
      if (above || below) throw ValueError(op, "no ", t, " lies between the bounds ", low, " and ", high);
    }
  });
}

template <class F>
Tensor ternary_result(const char* op, const Tensor& x, const Tensor& a, const Tensor& b) {
  const DType dtype = promote(result_dtype(x, a), result_dtype(x, b));
  if (!is_floating(dtype)) throw DTypeError(op, "expected floating-point tensors, given ", describe(x));
  return empty_result(op, dtype, {&x, &a, &b});
}

// What rounding does to integers: nothing.
template <class F>
Tensor rounding(const char* op, const UnarySlot& slot, const Tensor& x) {
  return is_floating(x.dtype()) ? unary<F>(op, slot, x) : clone(x);
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return binary<Add>("add", add_kernel, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return binary<Sub>("sub", sub_kernel, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return binary<Mul>("mul", mul_kernel, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return binary<Div>("div", div_kernel, a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return binary<Pow>("pow", pow_kernel, a, b); }
Tensor remainder(const Tensor& a, const Tensor& b) {
  return binary<Remainder>("remainder", remainder_kernel, a, b);
}
Tensor maximum(const Tensor& a, const Tensor& b) { return binary<Maximum>("maximum", maximum_kernel, a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary<Minimum>("minimum", minimum_kernel, a, b); }
Tensor add(const Tensor& a, const Tensor& b, Number alpha) {
  check_factor("add", result_dtype(a, b), alpha);
  return binary<AddScaled>("add", add_scaled_kernel, a, b, alpha.to_double(), alpha.to_i64());
}
Tensor lerp(const Tensor& a, const Tensor& b, double weight) {
  return binary<Lerp>("lerp", lerp_kernel, a, b, weight);
}

Tensor eq(const Tensor& a, const Tensor& b) { return predicate("eq", eq_kernel, a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return predicate("ne", ne_kernel, a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return predicate("lt", lt_kernel, a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return predicate("le", le_kernel, a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return predicate("gt", gt_kernel, a, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return predicate("ge", ge_kernel, a, b); }
Tensor logical_and(const Tensor& a, const Tensor& b) {
  return predicate("logical_and", logical_and_kernel, a, b);
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  return predicate("logical_or", logical_or_kernel, a, b);
}
Tensor logical_not(const Tensor& x) { return predicate(logical_not_kernel, x); }
Tensor isnan(const Tensor& x) { return predicate(isnan_kernel, x); }
Tensor isfinite(const Tensor& x) { return predicate(isfinite_kernel, x); }

Tensor neg(const Tensor& x) { return unary<Neg>("neg", neg_kernel, x); }
Tensor abs(const Tensor& x) { return unary<Abs>("abs", abs_kernel, x); }
Tensor sign(const Tensor& x) { return unary<Sign>("sign", sign_kernel, x); }
Tensor square(const Tensor& x) { return unary<Square>("square", square_kernel, x); }
Tensor exp(const Tensor& x) { return unary<Exp>("exp", exp_kernel, x); }
Tensor expm1(const Tensor& x) { return unary<Expm1>("expm1", expm1_kernel, x); }
Tensor log(const Tensor& x) { return unary<Log>("log", log_kernel, x); }
Tensor log1p(const Tensor& x) { return unary<Log1p>("log1p", log1p_kernel, x); }
Tensor sqrt(const Tensor& x) { return unary<Sqrt>("sqrt", sqrt_kernel, x); }
Tensor rsqrt(const Tensor& x) { return unary<Rsqrt>("rsqrt", rsqrt_kernel, x); }
Tensor reciprocal(const Tensor& x) { return unary<Reciprocal>("reciprocal", reciprocal_kernel, x); }
Tensor sin(const Tensor& x) { return unary<Sin>("sin", sin_kernel, x); }
Tensor cos(const Tensor& x) { return unary<Cos>("cos", cos_kernel, x); }
Tensor tanh(const Tensor& x) { return unary<Tanh>("tanh", tanh_kernel, x); }
Tensor sigmoid(const Tensor& x) { return unary<Sigmoid>("sigmoid", sigmoid_kernel, x); }
Tensor erf(const Tensor& x) { return unary<Erf>("erf", erf_kernel, x); }
Tensor floor(const Tensor& x) { return rounding<Floor>("floor", floor_kernel, x); }
Tensor ceil(const Tensor& x) { return rounding<Ceil>("ceil", ceil_kernel, x); }
Tensor round(const Tensor& x) { return rounding<Round>("round", round_kernel, x); }

Tensor relu(const Tensor& x) { return unary<Relu>("relu", relu_kernel, x); }
Tensor leaky_relu(const Tensor& x, double slope) {
  return unary<LeakyRelu>("leaky_relu", leaky_relu_kernel, x, slope);
}
Tensor elu(const Tensor& x, double alpha) { return unary<Elu>("elu", elu_kernel, x, alpha); }
Tensor softplus(const Tensor& x, double beta, double threshold) {
  return unary<Softplus>("softplus", softplus_kernel, x, beta, threshold);
}
Tensor silu(const Tensor& x) { return unary<Silu>("silu", silu_kernel, x); }
Tensor logsigmoid(const Tensor& x) { return unary<LogSigmoid>("logsigmoid", logsigmoid_kernel, x); }
Tensor gelu(const Tensor& x) { return unary<Gelu>("gelu", gelu_kernel, x); }
Tensor gelu_tanh(const Tensor& x) { return unary<GeluTanh>("gelu_tanh", gelu_tanh_kernel, x); }

Tensor relu_backward(const Tensor& dy, const Tensor& y, const Tensor& out) {
  return backward("relu_backward", relu_backward_kernel, dy, y, out);
}
Tensor sigmoid_backward(const Tensor& dy, const Tensor& y, const Tensor& out) {
  return backward("sigmoid_backward", sigmoid_backward_kernel, dy, y, out);
}
Tensor tanh_backward(const Tensor& dy, const Tensor& y, const Tensor& out) {
  return backward("tanh_backward", tanh_backward_kernel, dy, y, out);
}
Tensor silu_backward(const Tensor& dy, const Tensor& x, const Tensor& out) {
  return backward("silu_backward", silu_backward_kernel, dy, x, out);
}
Tensor gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& out) {
  return backward("gelu_backward", gelu_backward_kernel, dy, x, out);
}
Tensor gelu_tanh_backward(const Tensor& dy, const Tensor& x, const Tensor& out) {
  return backward("gelu_tanh_backward", gelu_tanh_backward_kernel, dy, x, out);
}
Tensor leaky_relu_backward(const Tensor& dy, const Tensor& x, double slope, const Tensor& out) {
  return backward("leaky_relu_backward", leaky_relu_backward_kernel, dy, x, out, slope);
}
Tensor elu_backward(const Tensor& dy, const Tensor& x, double alpha, const Tensor& out) {
  return backward("elu_backward", elu_backward_kernel, dy, x, out, alpha);
}
Tensor clamp_backward(const Tensor& dy, const Tensor& x, double low, double high, const Tensor& out) {
  return backward("clamp_backward", clamp_backward_kernel, dy, x, out, low, high);
}

Tensor clamp(const Tensor& x, Number low, Number high) {
  check_bounds("clamp", x.dtype(), low, high);
  return unary<Clamp>("clamp", clamp_kernel, x, low.to_double(), high.to_double(), low.to_i64(),
                      high.to_i64());
}

Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) {
  const DType dtype = check<LerpTensor>("lerp", result_dtype(a, b), a);
  Tensor y = empty_result("lerp", dtype, {&a, &b, &weight});
  lerp_tensor_kernel(y, a, b, weight);
  return y;
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_bool("where", "condition", condition);
  Tensor y = empty_result("where", result_dtype(a, b), {&a, &b, &condition});
  where_kernel(y, condition, a, b);
  return y;
}

void add_(const Tensor& dst, const Tensor& src) {
  in_place<Add>("add_", add_kernel, dst, dst, source_for("add_", dst, src));
}
void add_(const Tensor& dst, const Tensor& src, Number alpha) {
  check_factor("add_", dst.dtype(), alpha);
  in_place<AddScaled>("add_", add_scaled_kernel, dst, dst, source_for("add_", dst, src), alpha.to_double(),
                      alpha.to_i64());
}
void sub_(const Tensor& dst, const Tensor& src) {
  in_place<Sub>("sub_", sub_kernel, dst, dst, source_for("sub_", dst, src));
}
void mul_(const Tensor& dst, const Tensor& src) {
  in_place<Mul>("mul_", mul_kernel, dst, dst, source_for("mul_", dst, src));
}
void div_(const Tensor& dst, const Tensor& src) {
  in_place<Div>("div_", div_kernel, dst, dst, source_for("div_", dst, src));
}
void maximum_(const Tensor& dst, const Tensor& src) {
  in_place<Maximum>("maximum_", maximum_kernel, dst, dst, source_for("maximum_", dst, src));
}
void lerp_(const Tensor& dst, const Tensor& src, double weight) {
  in_place<Lerp>("lerp_", lerp_kernel, dst, dst, source_for("lerp_", dst, src), weight);
}
void addcmul_(const Tensor& dst, const Tensor& a, const Tensor& b, double value) {
  in_place<AddCMul>("addcmul_", addcmul_kernel, dst, dst, source_for("addcmul_", dst, a),
                    source_for("addcmul_", dst, b), value);
}
void addcdiv_(const Tensor& dst, const Tensor& a, const Tensor& b, double value) {
  in_place<AddCDiv>("addcdiv_", addcdiv_kernel, dst, dst, source_for("addcdiv_", dst, a),
                    source_for("addcdiv_", dst, b), value);
}
void sqrt_(const Tensor& x) { in_place<Sqrt>("sqrt_", sqrt_kernel, x, x); }
void square_(const Tensor& x) { in_place<Square>("square_", square_kernel, x, x); }
void relu_(const Tensor& x) { in_place<Relu>("relu_", relu_kernel, x, x); }
void clamp_(const Tensor& x, Number low, Number high) {
  check_bounds("clamp_", x.dtype(), low, high);
  in_place<Clamp>("clamp_", clamp_kernel, x, x, low.to_double(), high.to_double(), low.to_i64(),
                  high.to_i64());
}

Tensor tan(const Tensor& x) { return unary<Tan>("tan", tan_kernel, x); }
Tensor asin(const Tensor& x) { return unary<Asin>("asin", asin_kernel, x); }
Tensor acos(const Tensor& x) { return unary<Acos>("acos", acos_kernel, x); }
Tensor atan(const Tensor& x) { return unary<Atan>("atan", atan_kernel, x); }
Tensor sinh(const Tensor& x) { return unary<Sinh>("sinh", sinh_kernel, x); }
Tensor cosh(const Tensor& x) { return unary<Cosh>("cosh", cosh_kernel, x); }
Tensor asinh(const Tensor& x) { return unary<Asinh>("asinh", asinh_kernel, x); }
Tensor acosh(const Tensor& x) { return unary<Acosh>("acosh", acosh_kernel, x); }
Tensor atanh(const Tensor& x) { return unary<Atanh>("atanh", atanh_kernel, x); }
Tensor exp2(const Tensor& x) { return unary<Exp2>("exp2", exp2_kernel, x); }
Tensor log2(const Tensor& x) { return unary<Log2>("log2", log2_kernel, x); }
Tensor log10(const Tensor& x) { return unary<Log10>("log10", log10_kernel, x); }
Tensor erfc(const Tensor& x) { return unary<Erfc>("erfc", erfc_kernel, x); }
Tensor erfinv(const Tensor& x) { return unary<OnFloats>("erfinv", erfinv_kernel, x); }
Tensor lgamma(const Tensor& x) { return unary<OnFloats>("lgamma", lgamma_kernel, x); }
Tensor selu(const Tensor& x) { return unary<Selu>("selu", selu_kernel, x); }
Tensor mish(const Tensor& x) { return unary<Mish>("mish", mish_kernel, x); }
Tensor hardsigmoid(const Tensor& x) { return unary<HardSigmoid>("hardsigmoid", hardsigmoid_kernel, x); }
Tensor hardswish(const Tensor& x) { return unary<HardSwish>("hardswish", hardswish_kernel, x); }
Tensor polygamma(int64_t n, const Tensor& x) { return unary<OnFloats>("polygamma", polygamma_kernel, x, n); }
Tensor trunc(const Tensor& x) { return rounding<Trunc>("trunc", trunc_kernel, x); }
Tensor isinf(const Tensor& x) { return predicate(isinf_kernel, x); }
Tensor celu(const Tensor& x, double alpha) { return unary<Celu>("celu", celu_kernel, x, alpha); }
Tensor hardshrink(const Tensor& x, double lambda) {
  return unary<HardShrink>("hardshrink", hardshrink_kernel, x, lambda);
}
Tensor softshrink(const Tensor& x, double lambda) {
  return unary<SoftShrink>("softshrink", softshrink_kernel, x, lambda);
}
Tensor threshold(const Tensor& x, double t, double value) {
  return unary<Threshold>("threshold", threshold_kernel, x, t, value);
}
Tensor atan2(const Tensor& a, const Tensor& b) { return binary<Atan2>("atan2", atan2_kernel, a, b); }
Tensor fmod(const Tensor& a, const Tensor& b) { return binary<Fmod>("fmod", fmod_kernel, a, b); }
Tensor floor_divide(const Tensor& a, const Tensor& b) {
  return binary<FloorDivide>("floor_divide", floor_divide_kernel, a, b);
}
Tensor trunc_divide(const Tensor& a, const Tensor& b) {
  return binary<TruncDivide>("div", trunc_divide_kernel, a, b);
}
Tensor hypot(const Tensor& a, const Tensor& b) { return binary<Hypot>("hypot", hypot_kernel, a, b); }
Tensor copysign(const Tensor& a, const Tensor& b) {
  return binary<Copysign>("copysign", copysign_kernel, a, b);
}
Tensor xlogy(const Tensor& a, const Tensor& b) { return binary<Xlogy>("xlogy", xlogy_kernel, a, b); }
Tensor logaddexp(const Tensor& a, const Tensor& b) {
  return binary<LogAddExp>("logaddexp", logaddexp_kernel, a, b);
}
Tensor heaviside(const Tensor& a, const Tensor& b) {
  return binary<Heaviside>("heaviside", heaviside_kernel, a, b);
}
Tensor prelu(const Tensor& a, const Tensor& b) { return binary<Prelu>("prelu", prelu_kernel, a, b); }
Tensor bitwise_and(const Tensor& a, const Tensor& b) {
  return bitwise("bitwise_and", bitwise_and_kernel, a, b);
}
Tensor bitwise_or(const Tensor& a, const Tensor& b) { return bitwise("bitwise_or", bitwise_or_kernel, a, b); }
Tensor bitwise_xor(const Tensor& a, const Tensor& b) {
  return bitwise("bitwise_xor", bitwise_xor_kernel, a, b);
}
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b) {
  return bitwise("bitwise_left_shift", bitwise_left_shift_kernel, a, b);
}
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b) {
  return bitwise("bitwise_right_shift", bitwise_right_shift_kernel, a, b);
}
Tensor bitwise_not(const Tensor& x) {
  check_integral("bitwise_not", x);
  return unary<OnAll>("bitwise_not", bitwise_not_kernel, x);
}

Tensor nan_to_num(const Tensor& x, double nan, double positive, double negative) {
  if (is_integral(x.dtype())) return clone(x);
  return unary<NanToNum>("nan_to_num", nan_to_num_kernel, x, nan, positive, negative);
}

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  Tensor y = ternary_result<AddCMul>("addcmul", x, a, b);
  addcmul_kernel(y, x, a, b, value);
  return y;
}
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  Tensor y = ternary_result<AddCDiv>("addcdiv", x, a, b);
  addcdiv_kernel(y, x, a, b, value);
  return y;
}

}  // namespace gradus::raw
