#include "gradus/tensor/ops/elementwise.h"

#include <cmath>
#include <limits>

#include "gradus/tensor/ops/pointwise.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {

namespace internal {

void throw_no_bool(const char* op, const Tensor& x) {
  throw DTypeError(op, "is not defined for bool: ", describe(x));
}

void check_integral(const char* op, const Tensor& x) {
  if (!is_integral(x.dtype())) throw DTypeError(op, "expected integers or bool, given ", describe(x));
}

void check_floating(const char* op, DType t, const Tensor& x) {
  if (!is_floating(t)) throw DTypeError(op, "expected floating-point tensors, given ", describe(x));
}

void check_backward(const char* op, const Tensor& dy, const Tensor& x) {
  if (!is_floating(dy.dtype()) || !is_floating(x.dtype()))
    throw DTypeError(op, "expected floating-point tensors, given dy ", describe(dy), ", x ", describe(x));
}

void check_destination(const char* op, const Tensor& dst, bool only_floats) {
  if (only_floats && !is_floating(dst.dtype()))
    throw DTypeError(op, "expected a floating-point destination, given ", describe(dst));
  check_writable(op, dst);
}

}  // namespace internal

namespace {

using namespace functors;  // NOLINT

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

template <class F> Tensor ternary(const Tensor& x, const Tensor& a, const Tensor& b, double parameter) {
  const DType dtype = promote(result_dtype(x, a), result_dtype(x, b));
  internal::check_floating(F::name, dtype, x);
  Tensor y = empty_result(F::name, dtype, {&x, &a, &b});
  Ternary<F, double>::kernel(y, x, a, b, parameter);
  return y;
}

template <class F>
void ternary_(const char* op, const Tensor& dst, const Tensor& a, const Tensor& b, double parameter) {
  const Tensor x = source_for(op, dst, a), y = source_for(op, dst, b);
  internal::check_destination(op, dst, true);
  Ternary<F, double>::kernel(dst, dst, x, y, parameter);
  dst.storage()->bump_version();
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return binary<Add>(a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return binary<Sub>(a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return binary<Mul>(a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return binary<Div>(a, b); }
Tensor pow(const Tensor& a, const Tensor& b) { return binary<Pow>(a, b); }
Tensor remainder(const Tensor& a, const Tensor& b) { return binary<Remainder>(a, b); }
Tensor maximum(const Tensor& a, const Tensor& b) { return binary<Maximum>(a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary<Minimum>(a, b); }
Tensor add(const Tensor& a, const Tensor& b, Number alpha) {
  check_factor("add", result_dtype(a, b), alpha);
  return binary<AddScaled>(a, b, alpha.to_double(), alpha.to_i64());
}
Tensor lerp(const Tensor& a, const Tensor& b, double weight) { return binary<Lerp>(a, b, weight); }

Tensor eq(const Tensor& a, const Tensor& b) { return binary<Eq>(a, b); }
Tensor ne(const Tensor& a, const Tensor& b) { return binary<Ne>(a, b); }
Tensor lt(const Tensor& a, const Tensor& b) { return binary<Lt>(a, b); }
Tensor le(const Tensor& a, const Tensor& b) { return binary<Le>(a, b); }
Tensor gt(const Tensor& a, const Tensor& b) { return binary<Gt>(a, b); }
Tensor ge(const Tensor& a, const Tensor& b) { return binary<Ge>(a, b); }
Tensor logical_and(const Tensor& a, const Tensor& b) { return binary<LogicalAnd>(a, b); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return binary<LogicalOr>(a, b); }

Tensor clamp(const Tensor& x, Number low, Number high) {
  check_bounds("clamp", x.dtype(), low, high);
  return unary<Clamp>(x, low.to_double(), high.to_double(), low.to_i64(), high.to_i64());
}

Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) {
  const DType dtype = internal::result_of<LerpTensor>(result_dtype(a, b), a);
  Tensor y = empty_result("lerp", dtype, {&a, &b, &weight});
  Ternary<LerpTensor>::kernel(y, a, b, weight);
  return y;
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_bool("where", "condition", condition);
  Tensor y = empty_result("where", result_dtype(a, b), {&a, &b, &condition});
  where_kernel(y, condition, a, b);
  return y;
}

void add_(const Tensor& dst, const Tensor& src) { binary_<Add>("add_", dst, src); }
void add_(const Tensor& dst, const Tensor& src, Number alpha) {
  check_factor("add_", dst.dtype(), alpha);
  binary_<AddScaled>("add_", dst, src, alpha.to_double(), alpha.to_i64());
}
void sub_(const Tensor& dst, const Tensor& src) { binary_<Sub>("sub_", dst, src); }
void mul_(const Tensor& dst, const Tensor& src) { binary_<Mul>("mul_", dst, src); }
void div_(const Tensor& dst, const Tensor& src) { binary_<Div>("div_", dst, src); }
void maximum_(const Tensor& dst, const Tensor& src) { binary_<Maximum>("maximum_", dst, src); }
void lerp_(const Tensor& dst, const Tensor& src, double weight) { binary_<Lerp>("lerp_", dst, src, weight); }
void addcmul_(const Tensor& dst, const Tensor& a, const Tensor& b, double value) {
  ternary_<AddCMul>("addcmul_", dst, a, b, value);
}
void addcdiv_(const Tensor& dst, const Tensor& a, const Tensor& b, double value) {
  ternary_<AddCDiv>("addcdiv_", dst, a, b, value);
}
void clamp_(const Tensor& x, Number low, Number high) {
  check_bounds("clamp_", x.dtype(), low, high);
  unary_<Clamp>("clamp_", x, low.to_double(), high.to_double(), low.to_i64(), high.to_i64());
}

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  return ternary<AddCMul>(x, a, b, value);
}
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value) {
  return ternary<AddCDiv>(x, a, b, value);
}

}  // namespace gradus::raw
