// Mathematical functions that element-wise functors are written with, for float and double, host and device.
//
// The float ones on the host are branch-free, so that compilers turn a loop over them into vector code, and
// the same element gives the same bits in a vector as alone. Within 2 units in the last place; edge cases as
// in the C library.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#if defined(__CUDACC__)
#define GRADUS_HD __host__ __device__ __forceinline__
#else
#define GRADUS_HD inline __attribute__((always_inline))
#endif

namespace gradus::m {

template <class T>
GRADUS_HD T fma(T a, T b, T c) {
  return std::fma(a, b, c);
}
template <class T>
GRADUS_HD T sqrt(T x) {
  return std::sqrt(x);
}
template <class T>
GRADUS_HD T abs(T x) {
  return std::fabs(x);
}
template <class T>
GRADUS_HD T copysign(T x, T sign) {
  return std::copysign(x, sign);
}

// clang-format off
GRADUS_HD double exp(double x) { return std::exp(x); }
GRADUS_HD double expm1(double x) { return std::expm1(x); }
GRADUS_HD double log(double x) { return std::log(x); }
GRADUS_HD double log1p(double x) { return std::log1p(x); }
GRADUS_HD double tanh(double x) { return std::tanh(x); }
GRADUS_HD double erf(double x) { return std::erf(x); }
// clang-format on

#if defined(__CUDA_ARCH__)
// clang-format off
GRADUS_HD float exp(float x) { return ::expf(x); }
GRADUS_HD float expm1(float x) { return ::expm1f(x); }
GRADUS_HD float log(float x) { return ::logf(x); }
GRADUS_HD float log1p(float x) { return ::log1pf(x); }
GRADUS_HD float tanh(float x) { return ::tanhf(x); }
GRADUS_HD float erf(float x) { return ::erff(x); }
// clang-format on
#else

namespace detail {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// ln 2 in two parts; the first has trailing zeros, so that its product with a small integer is exact.
inline constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;

GRADUS_HD float power_of_two(int32_t n) { return std::bit_cast<float>((uint32_t(n) + 127u) << 23); }

// x = n ln 2 + r with |r| <= ln 2 / 2, for |x| < 2^20. Adding 1.5 * 2^23 rounds to an integer held in the low
// bits.
struct Reduced {
  float r;
  int32_t n;
};
GRADUS_HD Reduced reduce(float x) {
  const float shifted = m::fma(x, 1.44269504f, 12582912.f);
  const float n = shifted - 12582912.f;
  const float r = m::fma(n, -kLn2Low, m::fma(n, -kLn2High, x));
  return {r, int32_t(std::bit_cast<uint32_t>(shifted) - 0x4B400000u)};
}

// e^r - 1 for |r| <= ln 2 / 2. Source: coefficients of Cephes' expf (S. Moshier).
GRADUS_HD float expm1_small(float r) {
  float p = 1.9875691500e-4f;
  p = m::fma(p, r, 1.3981999507e-3f);
  p = m::fma(p, r, 8.3334519073e-3f);
  p = m::fma(p, r, 4.1665795894e-2f);
  p = m::fma(p, r, 1.6666665459e-1f);
  p = m::fma(p, r, 5.0000001201e-1f);
  return m::fma(p, r * r, r);
}

}  // namespace detail

GRADUS_HD float exp(float x) {
  float c = x > 88.8f ? 88.8f : x;  // beyond these the result is infinite or 0 already; NaN stays
  c = c < -104.f ? -104.f : c;
  const auto [r, n] = detail::reduce(c);
  const float p = 1.f + detail::expm1_small(r);
  const int32_t half = n >> 1;  // in two steps, because 2^n alone may overflow or be subnormal
  return p * detail::power_of_two(half) * detail::power_of_two(n - half);
}

GRADUS_HD float expm1(float x) {
  const float c = x < -30.f ? -30.f : x > 80.f ? 80.f : x;
  const auto [r, n] = detail::reduce(c);
  const float scale = detail::power_of_two(n);
  const float y = m::fma(scale, detail::expm1_small(r), scale - 1.f);
  return x > 80.f ? m::exp(x) : y;
}

// Source: coefficients of Cephes' logf (S. Moshier).
GRADUS_HD float log(float x) {
  const bool subnormal = x < std::numeric_limits<float>::min();
  const float scaled = subnormal ? x * 8388608.f : x;
  // x = 2^e * mantissa, mantissa in [sqrt(1/2), sqrt(2)).
  const uint32_t bits = std::bit_cast<uint32_t>(scaled) + (0x3f800000u - 0x3f3504f3u);
  const float e = float(int32_t(bits >> 23) - (subnormal ? 127 + 23 : 127));
  const float f = std::bit_cast<float>((bits & 0x007fffffu) + 0x3f3504f3u) - 1.f;
  float p = 7.0376836292e-2f;
  p = m::fma(p, f, -1.1514610310e-1f);
  p = m::fma(p, f, 1.1676998740e-1f);
  p = m::fma(p, f, -1.2420140846e-1f);
  p = m::fma(p, f, 1.4249322787e-1f);
  p = m::fma(p, f, -1.6668057665e-1f);
  p = m::fma(p, f, 2.0000714765e-1f);
  p = m::fma(p, f, -2.4999993993e-1f);
  p = m::fma(p, f, 3.3333331174e-1f);
  const float z = f * f;
  float y = m::fma(e, detail::kLn2Low, p * f * z);
  y = m::fma(-0.5f, z, y);
  y = m::fma(e, detail::kLn2High, f + y);
  const float special = x == 0.f ? -detail::kInf : x < 0.f ? detail::kNaN : x;
  return x > 0.f && x < detail::kInf ? y : special;
}

GRADUS_HD float log1p(float x) {
  const float u = 1.f + x;
  // What rounding u lost, to first order.
  const float lost = u > 0.f && u < detail::kInf ? (x - (u - 1.f)) / u : 0.f;
  return m::log(u) + lost;
}

// Source: coefficients of Cephes' tanhf (S. Moshier).
GRADUS_HD float tanh(float x) {
  const float t = std::fabs(x), z = x * x;
  float p = -5.70498872745e-3f;
  p = m::fma(p, z, 2.06390887954e-2f);
  p = m::fma(p, z, -5.37397155531e-2f);
  p = m::fma(p, z, 1.33314422036e-1f);
  p = m::fma(p, z, -3.33332819422e-1f);
  const float small = m::fma(p * z, x, x);
  const float large = std::copysign(1.f - 2.f / (m::exp(t + t) + 1.f), x);
  return t < 0.625f ? small : large;
}

// Below 1: x + x P(x^2). Above: 1 - e^Q(|x|). Both polynomials interpolate at Chebyshev nodes.
GRADUS_HD float erf(float x) {
  const float t = std::fabs(x), s = x * x;
  float p = 7.87587505e-5f;
  p = m::fma(p, s, -8.01686428e-4f);
  p = m::fma(p, s, 5.18908742e-3f);
  p = m::fma(p, s, -2.6854212e-2f);
  p = m::fma(p, s, 1.12835947e-1f);
  p = m::fma(p, s, -3.76126267e-1f);
  p = m::fma(p, s, 1.28379166e-1f);
  const float c = t > 4.f ? 4.f : t;  // 1 - erf(4) is below half a unit in the last place
  float q = 1.64267897e-6f;
  q = m::fma(q, c, -4.61647852e-5f);
  q = m::fma(q, c, 5.97677275e-4f);
  q = m::fma(q, c, -4.76350966e-3f);
  q = m::fma(q, c, 2.64316433e-2f);
  q = m::fma(q, c, -1.10097243e-1f);
  q = m::fma(q, c, -6.3180955e-1f);
  q = m::fma(q, c, -1.13024188f);
  q = m::fma(q, c, 3.21866258e-4f);
  const float large = std::copysign(1.f - m::exp(q), x);
  return t < 1.f ? m::fma(p, x, x) : t >= 1.f ? large : x;
}

#endif

template <class T>
GRADUS_HD T sigmoid(T x) {
  return T(1) / (T(1) + m::exp(-x));
}

}  // namespace gradus::m
