// Special functions of one number in double precision, for host and device code: digamma, polygamma, Hurwitz
// zeta, and the inverse error function. NaN gives NaN; no function throws.
#pragma once

#include <cmath>
#include <limits>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::m {

// digamma(x) = d/dx log gamma(x): recurrence up to x >= 10, then the asymptotic series; reflection for x < 0.
// NaN at negative integers, -inf at 0, +inf at -0.
GRADUS_HOST_DEVICE inline double digamma(double x) {
  constexpr double kPi = 3.14159265358979324;
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  double reflected = 0;
  if (x < 0) {
    if (x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
    reflected = kPi / std::tan(kPi * x);
    x = 1 - x;
  }
  double y = 0;
  for (; x < 10; ++x) y -= 1 / x;
  const double z = 1 / (x * x);
  const double series =
      z *
      (1.0 / 12 -
       z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return y + std::log(x) - 0.5 / x - series - reflected;
}

// The Hurwitz zeta function sum_{k >= 0} (x + k)^-s for s > 1 and x > 0: the first terms, then the
// Euler-Maclaurin formula. Infinite for x = 0, NaN for x < 0 or s <= 1.
GRADUS_HOST_DEVICE inline double zeta(double s, double x) {
  constexpr int kTerms = 12;
  if (!(s > 1) || x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (int k = 0; k < kTerms; ++k) sum += std::pow(x + k, -s);
  const double a = x + kTerms;
  sum += std::pow(a, 1 - s) / (s - 1) + 0.5 * std::pow(a, -s);
  // Bernoulli numbers B_2k / (2k)!.
  constexpr double kB[] = {1.0 / 12,           -1.0 / 720,     1.0 / 30240,
                           -1.0 / 1209600,     1.0 / 47900160, -691.0 / 1307674368000.0,
                           1.0 / 74724249600.0};
  double rising = s, power = std::pow(a, -s - 1);
  for (int k = 0; k < 7; ++k) {
    sum += kB[k] * rising * power;
    rising *= (s + 2 * k + 1) * (s + 2 * k + 2);
    power /= a * a;
  }
  return sum;
}

// The n-th derivative of digamma, n >= 0: (-1)^(n + 1) n! zeta(n + 1, x), with recurrence for -1e6 < x < 0.
// NaN for x <= -1e6, where the fraction of a double has few digits; if n > 0 infinite at 0, -1, -2, ...
GRADUS_HOST_DEVICE inline double polygamma(int n, double x) {
  if (n == 0) return digamma(x);
  double sum = 0;
  if (x < 0 && x == std::floor(x)) x = 0;
  if (x > -1e6)
    for (; x < 0; ++x) sum += std::pow(x, -n - 1);
  return (n % 2 ? 1 : -1) * std::tgamma(n + 1.0) * (sum + zeta(n + 1.0, x));
}

// The inverse of erf, for y in [-1, 1] (NaN outside): a polynomial in w = -log(1 - y^2), then Halley
// iterations. For w > 16 the initial value is from the approximation erfc(x) = e^(-x^2) / (x sqrt(pi)).
// Source: M. Giles, "Approximating the erfinv function", 2010 (the polynomial).
GRADUS_HOST_DEVICE inline double erfinv(double y) {
  if (std::fabs(y) >= 1) return std::fabs(y) == 1 ? std::copysign(INFINITY, y) : NAN;
  constexpr double kCenter[] = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                                -4.39150654e-06, 0.00021858087,  -0.00125372503,
                                -0.00417768164,  0.246640727,    1.50140941};
  constexpr double kTail[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                              -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
  const double w = -std::log((1 - y) * (1 + y));
  const bool center = w<5, far = w> 16;
  const double t = center ? w - 2.5 : std::sqrt(w) - 3;
  double p = 0;
  for (int i = 0; i < 9; ++i) p = p * t + (center ? kCenter[i] : kTail[i]);
  double x = far ? std::copysign(std::sqrt(w + 0.12078223763524522 - 0.5 * std::log(w)), y) : p * y;
  for (int i = 0; i < (far ? 3 : 2); ++i) {
    // For |y| > 0.5 with erfc, to avoid cancellation in erf(x) - y.
    const double tail = (1 - std::fabs(y)) - std::erfc(std::fabs(x));
    const double off = y > 0.5 ? tail : y < -0.5 ? -tail : std::erf(x) - y;
    const double step = off / (1.12837916709551257 * std::exp(-x * x));
    x -= step / (1 + x * step);
  }
  return x;
}

}  // namespace gradus::m
