// Further functions of one and two numbers, element by element. autograd/ops/elementwise.h has arithmetic and
// the most common functions; shapes broadcast, dtypes promote, and errors are as there. Integers give f32
// where results are fractional.
#pragma once

#include <optional>

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// --- angles; all in radians ---

// Takes the tangent.
// Grad: dy (1 + y^2).
Tensor tan(const Tensor& x);
// Take the inverse of sine, cosine and tangent. asin and acos give NaN outside of [-1, 1].
// Grad: dy / sqrt(1 - x^2), -dy / sqrt(1 - x^2), dy / (1 + x^2).
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
// Takes the angle of the point (x, y), in [-pi, pi].
// Grad: to y, dy x / (x^2 + y^2); to x, -dy y / (x^2 + y^2).
Tensor atan2(const Tensor& y, const Tensor& x);
// Take the hyperbolic sine and cosine.
// Grad: dy cosh(x), dy sinh(x).
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
// Take the inverse of sinh, cosh (NaN below 1) and tanh (NaN outside of [-1, 1]).
// Grad: dy / sqrt(x^2 + 1), dy / sqrt(x^2 - 1), dy / (1 - x^2).
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
// Convert degrees to radians and back.
Tensor deg2rad(const Tensor& x);
Tensor rad2deg(const Tensor& x);
// Takes sin(pi x) / (pi x), 1 at 0.
Tensor sinc(const Tensor& x);

// --- exponentials, logarithms, special functions ---

// Take 2^x and logarithms to base 2 and 10.
// Grad: dy y log 2, dy / (x log 2), dy / (x log 10).
Tensor exp2(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
// Takes log(e^a + e^b) without overflow.
// Grad: dy e^(a - y), dy e^(b - y).
Tensor logaddexp(const Tensor& a, const Tensor& b);
// Takes x log y, 0 where x is 0.
// Grad: dy log y (0 where x is 0), dy x / y.
Tensor xlogy(const Tensor& x, const Tensor& y);
// Takes log(x / (1 - x)); with `eps`, x is first limited to [eps, 1 - eps].
// Errors: ValueError unless 0 <= eps < 1/2.
// Grad: dy / (x (1 - x)), 0 where x was limited.
Tensor logit(const Tensor& x, std::optional<double> eps = std::nullopt);
// Takes 1 - erf(x), accurate where that is small.
// Grad: -dy 2/sqrt(pi) e^(-x^2).
Tensor erfc(const Tensor& x);
// Takes the inverse of erf on (-1, 1).
// Grad: dy sqrt(pi)/2 e^(y^2).
Tensor erfinv(const Tensor& x);
// Takes the logarithm of |gamma(x)|.
// Grad: dy digamma(x).
Tensor lgamma(const Tensor& x);
// Take the derivative of lgamma, and that derivative's n-th derivative. For n >= 1 the result is infinite at
// 0, -1, -2, ..., and NaN below -1e6.
// Errors: ValueError unless 0 <= n <= 100.
// Grad: dy polygamma(n + 1, x).
Tensor digamma(const Tensor& x);
Tensor polygamma(int64_t n, const Tensor& x);

// --- rounding, remainders, signs ---

// Round toward 0, and to a number of decimals (to tens, hundreds, ... when it is negative).
// Grad: 0.
Tensor trunc(const Tensor& x);
Tensor round(const Tensor& x, int64_t decimals);
// Takes x - trunc(x).
// Grad: dy.
Tensor frac(const Tensor& x);
// Divides and rounds down. Integers: 0 for a divisor of 0.
// Grad: 0.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, Number b);
// Divides, then rounds toward 0 or down. kNone: as div. When the result is rounded, integers stay integers,
// and a divisor of 0 gives 0.
// Grad: 0 where rounded.
enum class RoundingMode { kNone, kTrunc, kFloor };
Tensor div(const Tensor& a, const Tensor& b, RoundingMode rounding_mode);
Tensor div(const Tensor& a, Number b, RoundingMode rounding_mode);
// Takes the remainder with the dividend's sign: y = a - b trunc(a / b). Integers: 0 for a divisor of 0.
// Grad: dy, -dy trunc(a / b).
Tensor fmod(const Tensor& a, const Tensor& b);
Tensor fmod(const Tensor& a, Number b);
// Takes |a| with the sign of b.
// Grad: to a, dy sign(a) sign(b), 0 where a is 0; to b, 0.
Tensor copysign(const Tensor& a, const Tensor& b);
// Takes 0 where x < 0, 1 where x > 0, and `at_zero` where x is 0.
// Grad: to x, none; to at_zero, dy where x is 0.
Tensor heaviside(const Tensor& x, const Tensor& at_zero);
// Takes sqrt(a^2 + b^2) without overflow.
// Grad: dy a / y, dy b / y.
Tensor hypot(const Tensor& a, const Tensor& b);

// --- combined arithmetic ---

// Compute a + alpha b, and a - alpha b.
// Errors: DTypeError for integers and a floating-point alpha.
// Grad: to a, dy; to b, alpha dy for add and -alpha dy for sub.
Tensor add(const Tensor& a, const Tensor& b, Number alpha);
Tensor add(const Tensor& a, Number b, Number alpha);
Tensor sub(const Tensor& a, const Tensor& b, Number alpha);
Tensor sub(const Tensor& a, Number b, Number alpha);
// Compute x + value a b, and x + value a / b.
// Errors: DTypeError for integers.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1);
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1);

// Limits x to the range between two tensors. An undefined bound does not limit. Where low > high, the
// result is high.
// Errors: ValueError when both are undefined.
// Grad: dy to x within the bounds, else to the bound that x was set to; at a bound half to each.
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high);

// Replaces NaN and infinities by numbers; by default by 0 and by the dtype's largest numbers.
// Grad: dy where x is finite.
struct NanToNumOptions {
  double nan = 0;
  std::optional<double> posinf = {}, neginf = {};
};
Tensor nan_to_num(const Tensor& x, NanToNumOptions options = {});

// --- tests; the result is bool ---

Tensor isinf(const Tensor& x);
Tensor isposinf(const Tensor& x);
Tensor isneginf(const Tensor& x);
Tensor logical_xor(const Tensor& a, const Tensor& b);

struct Closeness {
  double rtol = 1e-5, atol = 1e-8;
  bool equal_nan = false;  // two NaN count as close
};
// Tests |a - b| <= atol + rtol |b|. Infinities are close when they are equal.
Tensor isclose(const Tensor& a, const Tensor& b, Closeness options = {});
// Return whether all elements are close (allclose), or whether shapes and all elements are equal (equal).
// Both wait for the device.
bool allclose(const Tensor& a, const Tensor& b, Closeness options = {});
bool equal(const Tensor& a, const Tensor& b);

// --- bits of integers and bools ---
// Errors: DTypeError for floating-point operands.

Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_not(const Tensor& x);
// Shift by b bits. A shift beyond the width gives 0; to the right it gives the sign.
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);

}  // namespace gradus
