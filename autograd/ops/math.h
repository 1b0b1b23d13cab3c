// Element-wise exponentials, logarithms, angles and special functions. Shapes broadcast, dtypes promote, and
// errors are as in autograd/ops/arithmetic.h. Integers give f32.
#pragma once

#include <optional>

#include "gradus/tensor/tensor.h"

namespace gradus {

// --- exponentials and logarithms ---

// Takes the exponential: y = e^x.
// Grad: dy y.
Tensor exp(const Tensor& x);
// Takes e^x - 1, accurate near 0.
// Grad: dy e^x.
Tensor expm1(const Tensor& x);
// Takes the natural logarithm.
// Grad: dy / x.
Tensor log(const Tensor& x);
// Takes log(1 + x), accurate near 0.
// Grad: dy / (1 + x).
Tensor log1p(const Tensor& x);
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

// --- angles; all in radians ---

// Takes the sine of radians.
// Grad: dy cos(x).
Tensor sin(const Tensor& x);
// Takes the cosine of radians.
// Grad: -dy sin(x).
Tensor cos(const Tensor& x);
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

// --- special functions ---

// Takes log(x / (1 - x)); with `eps`, x is first limited to [eps, 1 - eps].
// Errors: ValueError unless 0 <= eps < 1/2.
// Grad: dy / (x (1 - x)), 0 where x was limited, NaN for an x outside of [0, 1] otherwise.
Tensor logit(const Tensor& x, std::optional<double> eps = std::nullopt);
// Takes the error function: y = 2/sqrt(pi) times the integral of e^(-t^2) from 0 to x.
// Grad: dy 2/sqrt(pi) e^(-x^2).
Tensor erf(const Tensor& x);
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

}  // namespace gradus
