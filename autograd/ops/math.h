// Element-wise exponentials, logarithms, trigonometric, hyperbolic and special functions. Broadcasting,
// promotion of dtypes and errors are as in autograd/ops/arithmetic.h. Integers give the default dtype.
#pragma once

#include <optional>

#include "gradus/tensor/tensor.h"

namespace gradus {

// --- exponentials and logarithms ---

// y = e^x.
// Grad: dy y.
Tensor exp(const Tensor& x);
// y = e^x - 1, accurate near 0.
// Grad: dy e^x.
Tensor expm1(const Tensor& x);
// Natural logarithm.
// Grad: dy / x.
Tensor log(const Tensor& x);
// y = log(1 + x), accurate near 0.
// Grad: dy / (1 + x).
Tensor log1p(const Tensor& x);
// 2^x, and the logarithms to base 2 and 10.
// Grad: dy y log 2, dy / (x log 2), dy / (x log 10).
Tensor exp2(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
// y = log(e^a + e^b), without overflow.
// Grad: da = dy e^(a - y), db = dy e^(b - y).
Tensor logaddexp(const Tensor& a, const Tensor& b);
// z = x log y; 0 where x = 0 and y is not NaN.
// Grad: dx = dz log y, and 0 where x = 0 and y <= 0; dy = dz x / y.
Tensor xlogy(const Tensor& x, const Tensor& y);

// --- trigonometric and hyperbolic functions; angles are in radians ---

// Sine.
// Grad: dy cos(x).
Tensor sin(const Tensor& x);
// Cosine.
// Grad: -dy sin(x).
Tensor cos(const Tensor& x);
// Tangent.
// Grad: dy (1 + y^2).
Tensor tan(const Tensor& x);
// Inverse sine, cosine and tangent. asin and acos are NaN outside of [-1, 1].
// Grad: dy / sqrt(1 - x^2), -dy / sqrt(1 - x^2), dy / (1 + x^2).
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
// Angle a of the point (x, y), in [-pi, pi].
// Grad: dy = da x / (x^2 + y^2), dx = -da y / (x^2 + y^2); 0 where x = y = 0.
Tensor atan2(const Tensor& y, const Tensor& x);
// Hyperbolic sine and cosine.
// Grad: dy cosh(x), dy sinh(x).
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
// Inverses of sinh, cosh (NaN below 1) and tanh (NaN outside of [-1, 1]).
// Grad: dy / sqrt(x^2 + 1), dy / sqrt(x^2 - 1), dy / (1 - x^2).
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
// Convert degrees to radians and back.
Tensor deg2rad(const Tensor& x);
Tensor rad2deg(const Tensor& x);
// y = sin(pi x) / (pi x), 1 at 0.
Tensor sinc(const Tensor& x);

// --- special functions ---

// y = log(x / (1 - x)); with `eps`, x is first clamped to [eps, 1 - eps].
// Errors: ValueError unless 0 <= eps < 1/2.
// Grad: dy / (x (1 - x)); 0 where x was clamped; without `eps`, NaN for x outside of [0, 1].
Tensor logit(const Tensor& x, std::optional<double> eps = std::nullopt);
// Error function: y = 2/sqrt(pi) times the integral of e^(-t^2) from 0 to x.
// Grad: dy 2/sqrt(pi) e^(-x^2).
Tensor erf(const Tensor& x);
// Complementary error function: y = 1 - erf(x), accurate for large x.
// Grad: -dy 2/sqrt(pi) e^(-x^2).
Tensor erfc(const Tensor& x);
// Inverse of erf on (-1, 1).
// Grad: dy sqrt(pi)/2 e^(y^2).
Tensor erfinv(const Tensor& x);
// Logarithm of |gamma(x)|.
// Grad: dy digamma(x).
Tensor lgamma(const Tensor& x);
// digamma is the derivative of lgamma, polygamma the n-th derivative of digamma. For n >= 1 the result is
// infinite at 0, -1, -2, ..., and NaN below -1e6.
// Errors: ValueError unless 0 <= n <= 100.
// Grad: dy polygamma(n + 1, x).
Tensor digamma(const Tensor& x);
Tensor polygamma(int64_t n, const Tensor& x);

}  // namespace gradus
