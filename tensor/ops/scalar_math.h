// Scalar math functions of element-wise functors, for float and double, host and device.
//
// The float functions are polynomial approximations without branches, so that compilers vectorize loops over
// them. Results have the same bits in scalar code, in vector code and on GPUs, and errors of at most 2 ulp.
// Special cases are as in the C library. The double functions are those of the C library or of CUDA.
// sin, cos and tan require |x| < 1e15. GRADUS_HD marks a function of host and device that is always inlined,
// GRADUS_HOST_DEVICE any such function. Compilers must not contract or reorder floating-point operations.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#if defined(__CUDACC__)
#define GRADUS_HOST_DEVICE __host__ __device__
#define GRADUS_HD GRADUS_HOST_DEVICE __forceinline__
#else
#define GRADUS_HOST_DEVICE
#define GRADUS_HD inline __attribute__((always_inline))
#endif

namespace gradus::m {

template <class T> GRADUS_HD T fma(T a, T b, T c) { return std::fma(a, b, c); }
// Horner's scheme: c[0] x^n + ... + c[n], by n fused multiply-adds.
template <class T, class... Rest> GRADUS_HD T polynomial(T x, T c0, Rest... c) {
  T p = c0;
  ((p = m::fma(p, x, c)), ...);
  return p;
}
template <class T> GRADUS_HD T sqrt(T x) { return std::sqrt(x); }
template <class T> GRADUS_HD T abs(T x) { return std::fabs(x); }
template <class T> GRADUS_HD T copysign(T x, T sign) { return std::copysign(x, sign); }

// clang-format off
GRADUS_HD double exp(double x) { return std::exp(x); }
GRADUS_HD double expm1(double x) { return std::expm1(x); }
GRADUS_HD double log(double x) { return std::log(x); }
GRADUS_HD double log1p(double x) { return std::log1p(x); }
GRADUS_HD double tanh(double x) { return std::tanh(x); }
GRADUS_HD double erf(double x) { return std::erf(x); }
GRADUS_HD double erfc(double x) { return std::erfc(x); }
GRADUS_HD double sin(double x) { return std::sin(x); }
GRADUS_HD double cos(double x) { return std::cos(x); }
GRADUS_HD double tan(double x) { return std::tan(x); }
GRADUS_HD double asin(double x) { return std::asin(x); }
GRADUS_HD double acos(double x) { return std::acos(x); }
GRADUS_HD double atan(double x) { return std::atan(x); }
GRADUS_HD double sinh(double x) { return std::sinh(x); }
GRADUS_HD double cosh(double x) { return std::cosh(x); }
GRADUS_HD double asinh(double x) { return std::asinh(x); }
GRADUS_HD double acosh(double x) { return std::acosh(x); }
GRADUS_HD double atanh(double x) { return std::atanh(x); }
GRADUS_HD double exp2(double x) { return std::exp2(x); }
GRADUS_HD double log2(double x) { return std::log2(x); }
GRADUS_HD double log10(double x) { return std::log10(x); }
GRADUS_HD double pow(double x, double y) { return std::pow(x, y); }
// clang-format on

namespace detail {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// ln 2 = kLn2High + kLn2Low. kLn2High has trailing zero bits, so its product with a small integer is exact.
inline constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;

// Returns 2^n for -126 <= n <= 127.
GRADUS_HD float power_of_two(int32_t n) { return std::bit_cast<float>((uint32_t(n) + 127u) << 23); }

// Range reduction x = n ln 2 + r with |r| <= ln 2 / 2, for |x| < 2^20. Adding 1.5 * 2^23 rounds to an
// integer, which is then in the low bits of the mantissa.
struct Reduced {
  float r;
  int32_t n;
};
GRADUS_HD Reduced reduce(float x, float ln2_high = kLn2High, float ln2_low = kLn2Low) {
  const float shifted = m::fma(x, 1.44269504f, 12582912.f);
  const float n = shifted - 12582912.f;
  const float r = m::fma(n, -ln2_low, m::fma(n, -ln2_high, x));
  return {r, int32_t(std::bit_cast<uint32_t>(shifted) - 0x4B400000u)};
}

// (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2.
// Source: coefficients of Cephes' expf (S. Moshier).
GRADUS_HD float expm1_second(float r) {
  return m::polynomial(r, 1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f,
                       1.6666665459e-1f, 5.0000001201e-1f);
}
// e^r - 1 for |r| <= ln 2 / 2.
GRADUS_HD float expm1_small(float r) { return m::fma(expm1_second(r), r * r, r); }

}  // namespace detail

GRADUS_HD float exp(float x) {
  float c = x > 88.8f ? 88.8f : x;  // beyond these bounds the result is infinite or 0; NaN stays NaN
  c = c < -104.f ? -104.f : c;
  const auto [r, n] = detail::reduce(c);
  const float p = 1.f + detail::expm1_small(r);
  const int32_t half = n >> 1;  // 2^n as two factors, because 2^n may overflow or be subnormal
  return p * detail::power_of_two(half) * detail::power_of_two(n - half);
}

// expm1(-0) = -0: both parts of ln 2 are positive, r is a factor, and the term subtracted at the end is 0.
GRADUS_HD float expm1(float x) {
  float c = x < -30.f ? -30.f : x;
  c = c > 88.8f ? 88.8f : c;
  const auto [r, n] = detail::reduce(c, 0.693145752f, 1.42860677e-6f);
  const float half = detail::power_of_two(n - 1);  // 2^n may overflow even if the result does not
  return 2.f * m::fma(half, r * m::fma(detail::expm1_second(r), r, 1.f), -(0.5f - half));
}

namespace detail {
// takes_subnormals: whether x may be subnormal.
// Source: coefficients of Cephes' logf (S. Moshier).
template <bool takes_subnormals> GRADUS_HD float log(float x) {
  const bool subnormal = takes_subnormals && x < std::numeric_limits<float>::min();
  const float scaled = subnormal ? x * 8388608.f : x;
  // x = 2^e * mantissa, mantissa in [sqrt(1/2), sqrt(2)).
  const uint32_t bits = std::bit_cast<uint32_t>(scaled) + (0x3f800000u - 0x3f3504f3u);
  const float e = float(int32_t(bits >> 23) - (subnormal ? 127 + 23 : 127));
  const float f = std::bit_cast<float>((bits & 0x007fffffu) + 0x3f3504f3u) - 1.f;
  const float p = m::polynomial(f, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f,
                                1.4249322787e-1f, -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f,
                                3.3333331174e-1f);
  const float z = f * f;
  float y = m::fma(e, detail::kLn2Low, p * f * z);
  y = m::fma(-0.5f, z, y);
  y = m::fma(e, detail::kLn2High, f + y);
  const float special = x == 0.f ? -detail::kInf : x < 0.f ? detail::kNaN : x;
  return x > 0.f && x < detail::kInf ? y : special;
}
}  // namespace detail
GRADUS_HD float log(float x) { return detail::log<true>(x); }

// log(1 + x) = log(u) + (x - (u - 1)) / u with the rounded u = 1 + x.
GRADUS_HD float log1p(float x) {
  const float u = 1.f + x;
  // First-order correction of the rounding error of u.
  const float lost = u > 0.f && u < detail::kInf ? (x - (u - 1.f)) / u : 0.f;
  const uint32_t sign = std::bit_cast<uint32_t>(x) & 0x80000000u;  // the result has x's sign, also for -0
  return std::bit_cast<float>(std::bit_cast<uint32_t>(detail::log<false>(u) + lost) | sign);
}

// Source: coefficients of Cephes' tanhf (S. Moshier).
GRADUS_HD float tanh(float x) {
  const float t = std::fabs(x), z = x * x;
  const float p = m::polynomial(z, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                                1.33314422036e-1f, -3.33332819422e-1f);
  const float small = m::fma(p * z, t, t), large = 1.f - 2.f / (m::exp(t + t) + 1.f);
  return std::copysign(t < 0.625f ? small : large, x);
}

// erf(x) for |x| <= 1: x + x P(x^2), where P interpolates at Chebyshev nodes.
GRADUS_HD float erf_small(float x) {
  const float s = x * x;
  const float p = m::polynomial(s, 7.87587505e-5f, -8.01686428e-4f, 5.18908742e-3f, -2.6854212e-2f,
                                1.12835947e-1f, -3.76126267e-1f, 1.28379166e-1f);
  return m::fma(p, x, x);
}

// For |x| > 1: 1 - e^Q(|x|), where Q interpolates at Chebyshev nodes.
GRADUS_HD float erf(float x) {
  const float t = std::fabs(x);
  const float c = t > 4.f ? 4.f : t;  // 1 - erf(4) is below half a unit in the last place
  const float q =
      m::polynomial(c, 1.64267897e-6f, -4.61647852e-5f, 5.97677275e-4f, -4.76350966e-3f, 2.64316433e-2f,
                    -1.10097243e-1f, -6.3180955e-1f, -1.13024188f, 3.21866258e-4f);
  const float large = std::copysign(1.f - m::exp(q), x);
  return t < 1.f ? m::erf_small(x) : t >= 1.f ? large : x;
}

// erfc(x) = t e^(P(t) - x^2), t = 1 / (1 + x / 2) for x >= 0; P interpolates at Chebyshev nodes of [0, 10.2].
GRADUS_HD float erfc(float x) {
  const float a = std::fabs(x), c = a > 10.2f ? 10.2f : a;  // erfc underflows to 0 beyond
  const float t = 1.f / m::fma(0.5f, c, 1.f);
  const float p = m::polynomial(t, 0.149805024f, -0.707060754f, 1.21759295f, -0.775881469f, -0.0157489497f,
                                -0.032196071f, 0.0456637256f, 0.384401649f, 0.998883784f, -1.2654599f);
  // c^2 = square + rest exactly.
  const float square = c * c, rest = m::fma(c, c, -square);
  const float y = t * m::exp(-square) * (m::exp(p) * (1.f - rest));
  const float far = x < 0.f ? 2.f - y : y;
  return x != x ? x : a < 0.5f ? 1.f - m::erf_small(x) : far;
}

namespace detail {

// Range reduction r = x - n pi / 2 with the nearest integer n (Cody-Waite). The products with the two parts
// of pi / 2 are exact up to |x| = 1e15.
struct Angle {
  float r;
  int64_t n;
};
GRADUS_HD Angle reduce_angle(float x) {
  const double d = x, shifted = m::fma(d, 0.63661977236758138, 6755399441055744.0);  // 1.5 * 2^52 rounds
  const double n = shifted - 6755399441055744.0;
  double r = m::fma(n, -1.5707963267948966, d);
  r = m::fma(n, -6.123233995736766e-17, r);
  return {float(r), std::bit_cast<int64_t>(shifted)};
}

// r^2, or a tiny negative number for r = 0, which makes sin_small(-0) = -0.
GRADUS_HD float square_of_angle(float r) { return m::fma(r, r, -1e-30f); }
// For |r| <= pi / 4.
// Source: coefficients of Cephes' sinf and cosf (S. Moshier).
GRADUS_HD float sin_small(float r) {
  const float z = square_of_angle(r);
  const float p = m::polynomial(z, -1.9515295891e-4f, 8.3321608736e-3f, -1.6666654611e-1f);
  return m::fma(p * z, r, r);
}
GRADUS_HD float cos_small(float r) {
  const float z = square_of_angle(r);
  const float p = m::polynomial(z, 2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f);
  return m::fma(p * z, z, m::fma(-0.5f, z, 1.f));
}

}  // namespace detail

// n modulo 4 is the quadrant.
GRADUS_HD float sin(float x) {
  const auto [r, n] = detail::reduce_angle(x);
  const float s = detail::sin_small(r), c = detail::cos_small(r);
  const float y = n & 1 ? c : s;
  return n & 2 ? -y : y;
}
GRADUS_HD float cos(float x) {
  const auto [r, n] = detail::reduce_angle(x);
  const float s = detail::sin_small(r), c = detail::cos_small(r);
  const float y = n & 1 ? s : c;
  return (n + 1) & 2 ? -y : y;
}
GRADUS_HD float tan(float x) {
  const auto [r, n] = detail::reduce_angle(x);
  const float s = detail::sin_small(r), c = detail::cos_small(r);
  const float top = n & 1 ? -c : s, bottom = n & 1 ? s : c;
  return top / bottom;
}

// Source: coefficients of Cephes' asinf and atanf (S. Moshier).
namespace detail {
GRADUS_HD float asin_small(float s, float z) {  // |s| <= 1/2, z = s^2
  const float p = m::polynomial(z, 4.2163199048e-2f, 2.4181311049e-2f, 4.5470025998e-2f, 7.4953002686e-2f,
                                1.6666752422e-1f);
  return m::fma(p * z, s, s);
}
}  // namespace detail
// Beyond |x| = 1/2: asin |x| = pi/2 - 2 asin(sqrt((1 - |x|) / 2)).
GRADUS_HD float asin(float x) {
  const float a = std::fabs(x);
  const bool large = a > 0.5f;
  const float z = large ? 0.5f * (1.f - a) : a * a;
  const float s = large ? std::sqrt(z) : a;  // NaN beyond 1
  const float y = detail::asin_small(s, z);
  return std::copysign(large ? 1.57079637f - 2.f * y : y, x);
}
GRADUS_HD float acos(float x) {
  const float a = std::fabs(x);
  const bool large = a > 0.5f;
  const float z = large ? 0.5f * (1.f - a) : a * a;
  const float s = large ? std::sqrt(z) : x;
  const float y = detail::asin_small(s, z);
  const float near = x < 0.f ? 3.14159274f - 2.f * y : 2.f * y;
  return large ? near : 1.57079637f - y;
}
// Reduces to |t| <= tan(pi/8) by atan a = pi/2 + atan(-1/a) or pi/4 + atan((a - 1) / (a + 1)).
GRADUS_HD float atan(float x) {
  const float a = std::fabs(x);
  const bool large = a > 2.41421356f, middle = a > 0.414213562f;
  const float top = large ? -1.f : a - 1.f, bottom = large ? a : a + 1.f;
  const float t = middle ? top / bottom : a, z = t * t;
  const float p =
      m::polynomial(z, 8.05374449538e-2f, -1.38776856032e-1f, 1.99777106478e-1f, -3.33329491539e-1f);
  const float offset = large ? 1.57079637f : middle ? 0.785398185f : 0.f;
  return std::copysign(offset + m::fma(p * z, t, t), x);
}

// sinh and cosh use (e^(|x|/2))^2 / 2 for large |x|, where e^|x| would overflow first. asinh and acosh
// use log(2 |x|) beyond 1e9.
GRADUS_HD float sinh(float x) {
  const float a = std::fabs(x), e = m::expm1(a), h = m::exp(0.5f * a);
  const float y = a > 80.f ? (0.5f * h) * h : 0.5f * (e + e / (e + 1.f));
  return std::copysign(y, x);
}
GRADUS_HD float cosh(float x) {
  const float h = m::exp(0.5f * std::fabs(x)), e = h * h;
  return x != x ? x : std::fabs(x) > 80.f ? (0.5f * h) * h : 0.5f * (e + 1.f / e);
}
GRADUS_HD float asinh(float x) {
  const float a = std::fabs(x), z = a * a;
  const float near = m::log1p(a + z / (1.f + std::sqrt(z + 1.f))), far = m::log(a) + 0.693147182f;
  return std::copysign(a > 1e9f ? far : near, x);
}
GRADUS_HD float acosh(float x) {
  const float t = x - 1.f;
  const float near = m::log1p(t + std::sqrt(m::fma(t, t, 2.f * t))), far = m::log(x) + 0.693147182f;
  return x < 1.f ? detail::kNaN : x > 1e9f ? far : near;
}
GRADUS_HD float atanh(float x) {
  const float a = std::fabs(x);
  return std::copysign(0.5f * m::log1p((a + a) / (1.f - a)), x);
}

// 2^x = 2^k e^((x - k) ln 2) with the integer k nearest to x.
GRADUS_HD float exp2(float x) {
  float c = x > 128.f ? 128.f : x;
  c = c < -151.f ? -151.f : c;
  const float shifted = c + 12582912.f, n = shifted - 12582912.f;
  const int32_t k = int32_t(std::bit_cast<uint32_t>(shifted) - 0x4B400000u);
  const float p = 1.f + detail::expm1_small((c - n) * 0.693147182f);
  const int32_t half = k >> 1;
  return p * detail::power_of_two(half) * detail::power_of_two(k - half);
}

namespace detail {

// log2(x) for positive finite x, in double, with about 40 correct bits.
GRADUS_HD double log2_of(float x) {
  const bool subnormal = x < std::numeric_limits<float>::min();
  const float scaled = subnormal ? x * 8388608.f : x;
  const uint32_t bits = std::bit_cast<uint32_t>(scaled) + (0x3f800000u - 0x3f3504f3u);
  const int32_t e = int32_t(bits >> 23) - (subnormal ? 127 + 23 : 127);
  const double f = std::bit_cast<float>((bits & 0x007fffffu) + 0x3f3504f3u);
  // log f = 2 artanh(s), s = (f - 1) / (f + 1), |s| < 0.172
  const double s = (f - 1.0) / (f + 1.0), z = s * s;
  const double p = m::polynomial(z, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
  return m::fma(m::fma(p, z, 1.0) * s, 2.8853900817779268, double(e));
}

// 2^x for |x| <= 1100, in double.
GRADUS_HD double exp2_of(double x) {
  const double shifted = x + 6755399441055744.0, n = shifted - 6755399441055744.0;
  const double r = (x - n) * 0.69314718055994531;  // |r| <= 0.35
  const double p =
      m::polynomial(r, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0);
  const int64_t k = std::bit_cast<int64_t>(shifted) - 0x4338000000000000;
  return p * std::bit_cast<double>((k + 1023) << 52);
}

}  // namespace detail

GRADUS_HD float log2(float x) {
  const float y = float(detail::log2_of(x));
  const float special = x == 0.f ? -detail::kInf : x < 0.f ? detail::kNaN : x;
  return x > 0.f && x < detail::kInf ? y : special;
}
GRADUS_HD float log10(float x) {
  const float y = float(detail::log2_of(x) * 0.30102999566398120);
  const float special = x == 0.f ? -detail::kInf : x < 0.f ? detail::kNaN : x;
  return x > 0.f && x < detail::kInf ? y : special;
}

// |x|^y = exp2(y log2 |x|) in double, then the special cases of C's pow for signs, zeros, infinities and NaN.
GRADUS_HD float pow(float x, float y) {
  const float a = std::fabs(x), far = std::fabs(y);
  const bool inside = (a > 0.f) & (a < detail::kInf);
  double e = double(y) * detail::log2_of(inside ? a : 1.f);
  e = e > 1000.0 ? 1000.0 : e;
  e = e < -1000.0 ? -1000.0 : e;
  e = e == e ? e : 0.0;
  float r = float(detail::exp2_of(e));
  const float edge = (a == 0.f) == (y < 0.f) ? detail::kInf : 0.f;  // |x|^y for x = 0 and for x infinite
  r = inside ? r : edge;
  // An infinite exponent: the product y log2 |x| was infinite, or NaN (0 * infinity) where |x| is 1.
  r = (far == detail::kInf) & (a == 1.f) ? 1.f : r;
  const float half = 0.5f * y;
  const bool whole = std::floor(y) == y, odd = whole & (std::floor(half) != half);
  r = (x < 0.f) & !whole & (a < detail::kInf) ? detail::kNaN : r;
  const bool negative = std::bit_cast<int32_t>(x) < 0;
  r = negative & odd ? -r : r;
  r = (x != x) | (y != y) ? detail::kNaN : r;
  return (y == 0.f) | (x == 1.f) ? 1.f : r;
}

template <class T> GRADUS_HD T sigmoid(T x) { return T(1) / (T(1) + m::exp(-x)); }

}  // namespace gradus::m
