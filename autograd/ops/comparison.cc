// Element-wise comparison, logic, selection and bit operations. Kernels of namespace raw compute all results.
// Of these ops, only where and nan_to_num are recorded for gradients. allclose and equal wait for the device.
#include "gradus/autograd/ops/comparison.h"

#include <limits>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus {

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const OpCall call("where", {{"condition", condition}, {"a", a}, {"b", b}});
  Tensor y = raw::where(condition, a, b);
  if (Recorder r{"where", a, b}) {
    const auto c = r.save(condition);
    r.record(y, wrt(a, [c](const Tensor& dy) { return where(c.get(), dy, 0); }),
             wrt(b, [c](const Tensor& dy) { return where(c.get(), 0, dy); }));
  }
  return y;
}
Tensor where(const Tensor& condition, const Tensor& a, Number b) {
  const OpCall call("where", {{"condition", condition}, {"a", a}});
  check_fits("where", b, raw::result_dtype(a, b));
  return where(condition, a, raw::operand(b, a));
}
Tensor where(const Tensor& condition, Number a, const Tensor& b) {
  const OpCall call("where", {{"condition", condition}, {"b", b}});
  check_fits("where", a, raw::result_dtype(b, a));
  return where(condition, raw::operand(a, b), b);
}
// Records nothing: no operand can have a gradient.
Tensor where(const Tensor& condition, Number a, Number b) {
  const OpCall call("where", {{"condition", condition}});
  return raw::where(condition, scalar(a, {a.dtype(), condition.device()}),
                    scalar(b, {b.dtype(), condition.device()}));
}

namespace {

// Return the results of ops without gradients: f(a, b), F(x), F(a, b).
Tensor compared(const char* op, const Tensor& a, const Tensor& b, Tensor (*f)(const Tensor&, const Tensor&)) {
  const OpCall call(op, {{"a", a}, {"b", b}});
  return f(a, b);
}
Tensor compared(const char* op, const Tensor& a, Number b, Tensor (*f)(const Tensor&, Number)) {
  const OpCall call(op, {{"a", a}});
  return f(a, b);
}
template <class F> Tensor without_gradient(const char* op, const Tensor& x) {
  const OpCall call(op, {{"x", x}});
  return raw::unary<F>(x);
}
template <class F> Tensor without_gradient(const char* op, const Tensor& a, const Tensor& b) {
  const OpCall call(op, {{"a", a}, {"b", b}});
  return raw::binary<F>(a, b);
}

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) { return compared("eq", a, b, raw::eq); }
Tensor eq(const Tensor& a, Number b) { return compared("eq", a, b, raw::eq); }
Tensor ne(const Tensor& a, const Tensor& b) { return compared("ne", a, b, raw::ne); }
Tensor ne(const Tensor& a, Number b) { return compared("ne", a, b, raw::ne); }
Tensor lt(const Tensor& a, const Tensor& b) { return compared("lt", a, b, raw::lt); }
Tensor lt(const Tensor& a, Number b) { return compared("lt", a, b, raw::lt); }
Tensor le(const Tensor& a, const Tensor& b) { return compared("le", a, b, raw::le); }
Tensor le(const Tensor& a, Number b) { return compared("le", a, b, raw::le); }
Tensor gt(const Tensor& a, const Tensor& b) { return compared("gt", a, b, raw::gt); }
Tensor gt(const Tensor& a, Number b) { return compared("gt", a, b, raw::gt); }
Tensor ge(const Tensor& a, const Tensor& b) { return compared("ge", a, b, raw::ge); }
Tensor ge(const Tensor& a, Number b) { return compared("ge", a, b, raw::ge); }
Tensor logical_and(const Tensor& a, const Tensor& b) {
  return compared("logical_and", a, b, raw::logical_and);
}
Tensor logical_or(const Tensor& a, const Tensor& b) { return compared("logical_or", a, b, raw::logical_or); }
Tensor logical_not(const Tensor& x) { return without_gradient<functors::LogicalNot>("logical_not", x); }
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  const OpCall call("logical_xor", {{"a", a}, {"b", b}});
  return raw::ne(raw::to(a, DType::kBool), raw::to(b, DType::kBool));
}
Tensor isnan(const Tensor& x) { return without_gradient<functors::IsNaN>("isnan", x); }
Tensor isfinite(const Tensor& x) { return without_gradient<functors::IsFinite>("isfinite", x); }

Tensor isinf(const Tensor& x) { return without_gradient<functors::IsInf>("isinf", x); }
Tensor isposinf(const Tensor& x) {
  const OpCall call("isposinf", {{"x", x}});
  return logical_and(isinf(x), gt(x, 0));
}
Tensor isneginf(const Tensor& x) {
  const OpCall call("isneginf", {{"x", x}});
  return logical_and(isinf(x), lt(x, 0));
}

Tensor isclose(const Tensor& a_in, const Tensor& b_in, IscloseOptions options) {
  const OpCall call("isclose", {{"a", a_in}, {"b", b_in}});
  const Tensor a = detach(a_in), b = detach(b_in);
  if (!(options.rtol >= 0) || !(options.atol >= 0))
    throw ValueError("isclose", "expected rtol and atol >= 0, got ", options.rtol, " and ", options.atol);
  Tensor close = eq(a, b);
  if (options.equal_nan) close = logical_or(close, logical_and(isnan(a), isnan(b)));
  // Different integers differ by at least 1, so no further pairs are close.
  if (is_integral(a.dtype()) && is_integral(b.dtype()) && options.rtol == 0 && options.atol < 1) return close;
  // Integers may not hold their difference.
  const bool is_floating_point = is_floating(a.dtype()) || is_floating(b.dtype());
  const Tensor x = is_floating_point ? a : to(a, get_default_dtype()),
               y = is_floating_point ? b : to(b, get_default_dtype());
  const Tensor difference = abs(x - y);
  return logical_or(close,
                    logical_and(isfinite(difference), le(difference, abs(y) * options.rtol + options.atol)));
}
bool allclose(const Tensor& a, const Tensor& b, IscloseOptions options) {
  const OpCall call("allclose", {{"a", a}, {"b", b}});
  return all(isclose(a, b, options)).item<bool>();
}
bool equal(const Tensor& a, const Tensor& b) {
  const OpCall call("equal", {{"a", a}, {"b", b}});
  return a.shape() == b.shape() && all(eq(detach(a), detach(b))).item<bool>();
}

Tensor nan_to_num(const Tensor& x, NanToNumOptions options) {
  const OpCall call("nan_to_num", {{"x", x}});
  const DType t = x.dtype();
  const double largest = t == DType::kF64    ? std::numeric_limits<double>::max()
                         : t == DType::kF16  ? 65504.0
                         : t == DType::kBF16 ? 3.3895313892515355e38
                                             : double(std::numeric_limits<float>::max());
  Tensor y = raw::unary<functors::NanToNum>(x, options.nan, options.posinf.value_or(largest),
                                            options.neginf.value_or(-largest));
  if (Recorder r{"nan_to_num", x})
    r.record(y, wrt(x, [x = r.save(x)](const Tensor& dy) { return where(isfinite(x.get()), dy, 0); }));
  return y;
}

Tensor bitwise_and(const Tensor& a, const Tensor& b) {
  return without_gradient<functors::BitwiseAnd>("bitwise_and", a, b);
}
Tensor bitwise_or(const Tensor& a, const Tensor& b) {
  return without_gradient<functors::BitwiseOr>("bitwise_or", a, b);
}
Tensor bitwise_xor(const Tensor& a, const Tensor& b) {
  return without_gradient<functors::BitwiseXor>("bitwise_xor", a, b);
}
Tensor bitwise_not(const Tensor& x) { return without_gradient<functors::BitwiseNot>("bitwise_not", x); }
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b) {
  return without_gradient<functors::ShiftLeft>("bitwise_left_shift", a, b);
}
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b) {
  return without_gradient<functors::ShiftRight>("bitwise_right_shift", a, b);
}

}  // namespace gradus
