// Raw (unrecorded) element-wise arithmetic: each op checks its scalar parameters, and calls the templates
// binary, unary and binary_ (ops/elementwise.h), which infer shape and dtype, allocate, and call the kernel
// of the tensors' device for the functor (Add, Clamp, ...). AddScaled and Clamp have their scalars as double
// and as int64, for floating and integer elements.
#include "gradus/tensor/ops/arithmetic.h"

#include <cmath>
#include <limits>

#include "gradus/tensor/base/checked.h"

namespace gradus::raw {

namespace {

using namespace functors;  // NOLINT

void check_alpha(const char* op, DType t, Number alpha) {
  if (is_integral(t) && alpha.is_floating())
    throw DTypeError(op, "alpha must be an integer for ", t, ", got ", alpha, ", a floating-point number");
  check_fits(op, alpha, t);
}

// Checks that bounds are not NaN, and that some value of an integer dtype t is in [low, high], so that no
// element is clamped to a number that t cannot represent.
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

// Returns F(x, a, b) with broadcasting, for functors with one parameter.
// Errors: DTypeError unless the result is floating point.
template <class F> Tensor ternary(const Tensor& x, const Tensor& a, const Tensor& b, double parameter) {
  const DType dtype = promote(result_dtype(x, a), result_dtype(x, b));
  if (!is_floating(dtype)) throw DTypeError(F::name, "expected floating-point tensors, got ", describe(x));
  Tensor y = empty_result(F::name, dtype, {&x, &a, &b});
  Ternary<F>::kernel(y, x, a, b, F{{}, parameter});
  return y;
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
  check_alpha("add", result_dtype(a, b), alpha);
  return binary<AddScaled>(a, b, alpha.to_double(), alpha.to_i64());
}
Tensor lerp(const Tensor& a, const Tensor& b, double weight) { return binary<Lerp>(a, b, weight); }

Tensor clamp(const Tensor& x, Number low, Number high) {
  check_bounds("clamp", x.dtype(), low, high);
  return unary<Clamp>(x, low.to_double(), high.to_double(), low.to_i64(), high.to_i64());
}

Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) {
  const DType dtype = internal::result_of<LerpTensor>(result_dtype(a, b), a);
  Tensor y = empty_result("lerp", dtype, {&a, &b, &weight});
  Ternary<LerpTensor>::kernel(y, a, b, weight, {});
  return y;
}

void add_(const Tensor& dst, const Tensor& src) { binary_<Add>("add_", dst, src); }
void add_(const Tensor& dst, const Tensor& src, Number alpha) {
  check_alpha("add_", dst.dtype(), alpha);
  binary_<AddScaled>("add_", dst, src, alpha.to_double(), alpha.to_i64());
}
void sub_(const Tensor& dst, const Tensor& src) { binary_<Sub>("sub_", dst, src); }
void mul_(const Tensor& dst, const Tensor& src) { binary_<Mul>("mul_", dst, src); }
void div_(const Tensor& dst, const Tensor& src) { binary_<Div>("div_", dst, src); }
void lerp_(const Tensor& dst, const Tensor& src, double weight) { binary_<Lerp>("lerp_", dst, src, weight); }
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
