// Element-wise comparison, logic, selection and bit operations. Of these, where and nan_to_num have gradients.
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
Tensor where(const Tensor& condition, Number a, Number b) {
  const OpCall call("where", {{"condition", condition}});
  return raw::where(condition, scalar(a, {a.dtype(), condition.device()}),
                    scalar(b, {b.dtype(), condition.device()}));
}

Tensor eq(const Tensor& a, const Tensor& b) {
  const OpCall call("eq", {{"a", a}, {"b", b}});
  return raw::eq(a, b);
}
Tensor eq(const Tensor& a, Number b) {
  const OpCall call("eq", {{"a", a}});
  return raw::eq(a, b);
}
Tensor ne(const Tensor& a, const Tensor& b) {
  const OpCall call("ne", {{"a", a}, {"b", b}});
  return raw::ne(a, b);
}
Tensor ne(const Tensor& a, Number b) {
  const OpCall call("ne", {{"a", a}});
  return raw::ne(a, b);
}
Tensor lt(const Tensor& a, const Tensor& b) {
  const OpCall call("lt", {{"a", a}, {"b", b}});
  return raw::lt(a, b);
}
Tensor lt(const Tensor& a, Number b) {
  const OpCall call("lt", {{"a", a}});
  return raw::lt(a, b);
}
Tensor le(const Tensor& a, const Tensor& b) {
  const OpCall call("le", {{"a", a}, {"b", b}});
  return raw::le(a, b);
}
Tensor le(const Tensor& a, Number b) {
  const OpCall call("le", {{"a", a}});
  return raw::le(a, b);
}
Tensor gt(const Tensor& a, const Tensor& b) {
  const OpCall call("gt", {{"a", a}, {"b", b}});
  return raw::gt(a, b);
}
Tensor gt(const Tensor& a, Number b) {
  const OpCall call("gt", {{"a", a}});
  return raw::gt(a, b);
}
Tensor ge(const Tensor& a, const Tensor& b) {
  const OpCall call("ge", {{"a", a}, {"b", b}});
  return raw::ge(a, b);
}
Tensor ge(const Tensor& a, Number b) {
  const OpCall call("ge", {{"a", a}});
  return raw::ge(a, b);
}
Tensor logical_and(const Tensor& a, const Tensor& b) {
  const OpCall call("logical_and", {{"a", a}, {"b", b}});
  return raw::logical_and(a, b);
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  const OpCall call("logical_or", {{"a", a}, {"b", b}});
  return raw::logical_or(a, b);
}
Tensor logical_not(const Tensor& x) {
  const OpCall call("logical_not", {{"x", x}});
  return raw::unary<functors::LogicalNot>(x);
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  const OpCall call("logical_xor", {{"a", a}, {"b", b}});
  return raw::ne(raw::to(a, DType::kBool), raw::to(b, DType::kBool));
}
Tensor isnan(const Tensor& x) {
  const OpCall call("isnan", {{"x", x}});
  return raw::unary<functors::IsNaN>(x);
}
Tensor isfinite(const Tensor& x) {
  const OpCall call("isfinite", {{"x", x}});
  return raw::unary<functors::IsFinite>(x);
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

Tensor isclose(const Tensor& a_in, const Tensor& b_in, Closeness options) {
  const OpCall call("isclose", {{"a", a_in}, {"b", b_in}});
  const Tensor a = detach(a_in), b = detach(b_in);
  if (!(options.rtol >= 0) || !(options.atol >= 0))
    throw ValueError("isclose", "expected rtol and atol >= 0, got ", options.rtol, " and ", options.atol);
  Tensor close = eq(a, b);
  if (options.equal_nan) close = logical_or(close, logical_and(isnan(a), isnan(b)));
  if (is_integral(a.dtype()) && is_integral(b.dtype()) && options.rtol == 0 && options.atol < 1) return close;
  const Tensor difference = abs(a - b);
  return logical_or(close,
                    logical_and(isfinite(difference), le(difference, abs(b) * options.rtol + options.atol)));
}
bool allclose(const Tensor& a, const Tensor& b, Closeness options) {
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
