// Scalar formulas of random numbers, shared by the kernels of all devices: Philox4x32-10, and draws that
// convert its words to elements. The mapping of words to elements is in Note [Draws] (tensor/ops/random.h).
//
//   uint32_t words[4];
//   draws::philox(key, counter, words);
//   draws::make_elements<1>(draws::Uniform<float>(0, 1), words, elements);   // writes 4 elements
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "gradus/tensor/ops/scalar_math.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::draws {

// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxM0 = 0xD2511F53u, kPhiloxM1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxW0 = 0x9E3779B9u, kPhiloxW1 = 0xBB67AE85u;

// words = Philox4x32-10 of the counter under the key.
GRADUS_HD void philox(PhiloxKey key, uint64_t counter, uint32_t (&words)[4]) {
  uint32_t c0 = uint32_t(counter), c1 = uint32_t(counter >> 32);
  uint32_t c2 = uint32_t(key.stream), c3 = uint32_t(key.stream >> 32);
  uint32_t k0 = uint32_t(key.seed), k1 = uint32_t(key.seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t(kPhiloxM0) * c0, b = uint64_t(kPhiloxM1) * c2;
    c0 = uint32_t(b >> 32) ^ c1 ^ k0;
    c1 = uint32_t(b);
    c2 = uint32_t(a >> 32) ^ c3 ^ k1;
    c3 = uint32_t(a);
    k0 += kPhiloxW0;
    k1 += kPhiloxW1;
  }
  words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

// Returns a uniform number in [0, 1): a multiple of 2^-24 from one word (f32) or of 2^-53 from two words
// (f64).
template <class T> GRADUS_HD T unit(const uint32_t* words) {
  if constexpr (sizeof(T) == 4)
    return T(words[0] >> 8) * T(0x1p-24);
  else
    return T((uint64_t(words[0]) << 21) ^ (uint64_t(words[1]) >> 11)) * T(0x1p-53);
}

// sin(2 pi u) and cos(2 pi u) for u in [0, 1). u is reduced exactly to the distance from the nearest multiple
// of 1/4, which is at most 1/8.
template <class T> struct SinCos {
  T sin, cos;
};
// Source: coefficients of Cephes' sinf and cosf (S. Moshier).
GRADUS_HD SinCos<float> sin_cos_turns(float u) {
  const float shifted = m::fma(u, 4.f, 12582912.f), quarters = shifted - 12582912.f;
  const uint32_t quadrant = std::bit_cast<uint32_t>(shifted);
  const float x = m::fma(quarters, -0.25f, u) * float(2 * std::numbers::pi), z = x * x;
  const float s =
      m::fma(x * z, m::fma(m::fma(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f), x);
  const float c = m::fma(z * z, m::fma(m::fma(2.4433157118e-5f, z, -1.3887316255e-3f), z, 4.1666645683e-2f),
                         m::fma(-0.5f, z, 1.f));
  const bool odd = quadrant & 1;
  const float sine = odd ? c : s, cosine = odd ? s : c;
  return {quadrant & 2 ? -sine : sine, (quadrant + 1) & 2 ? -cosine : cosine};
}
GRADUS_HD SinCos<double> sin_cos_turns(double u) {
  return {m::sin(2 * std::numbers::pi * u), m::cos(2 * std::numbers::pi * u)};
}

// The structs below are draws: operator() converts kWords words to kElements elements of type Element.
// Callers have checked the parameters: low <= high, std >= 0, 0 <= p <= 1, range >= 1.

template <class T> struct Uniform {
  using Element = T;
  static constexpr int kWords = sizeof(T) / 4, kElements = 1;
  T low, width, last;

  // Results are limited to `last`, because rounding may give `high`, which the interval excludes.
  Uniform(double low, double high)
      : low(T(low)), width(T(high - low)), last(low < high ? std::nextafter(T(high), T(low)) : T(high)) {}
  GRADUS_HD void operator()(const uint32_t* words, T* elements) const {
    const T v = m::fma(width, unit<T>(words), low);
    elements[0] = v > last ? last : v;
  }
};

// Normal distribution by the Box-Muller transform.
template <class T> struct Normal {
  using Element = T;
  static constexpr int kWords = 2 * sizeof(T) / 4, kElements = 2;
  T mean, std;

  Normal(double mean, double std) : mean(T(mean)), std(T(std)) {}
  GRADUS_HD void operator()(const uint32_t* words, T* elements) const {
    const T radius = std * m::sqrt(T(-2) * m::log(T(1) - unit<T>(words)));
    const SinCos<T> turned = sin_cos_turns(unit<T>(words + kWords / 2));
    elements[0] = m::fma(radius, turned.cos, mean);
    elements[1] = m::fma(radius, turned.sin, mean);
  }
};

// True with probability p, rounded up to a multiple of 2^-24: compares 24 random bits with an integer.
struct Bernoulli {
  using Element = bool;
  static constexpr int kWords = 1, kElements = 1;
  uint32_t below;

  explicit Bernoulli(double p) : below(uint32_t(std::ceil(p * 0x1p24))) {}
  GRADUS_HD void operator()(const uint32_t* words, bool* elements) const {
    elements[0] = (words[0] >> 8) < below;
  }
};

// True with probability p, rounded up to a multiple of 2^-16: compares 16 random bits.
struct DropoutMask {
  using Element = bool;
  static constexpr int kWords = 1, kElements = 2;
  uint32_t below;

  explicit DropoutMask(double p) : below(uint32_t(std::ceil(p * 0x1p16))) {}
  GRADUS_HD void operator()(const uint32_t* words, bool* elements) const {
    elements[0] = (words[0] & 0xffffu) < below;
    elements[1] = (words[0] >> 16) < below;
  }
};

// Returns a uniform integer in [0, range): the upper half of the product of 64 random bits and `range`.
GRADUS_HD uint64_t scaled_bits(const uint32_t* words, uint64_t range) {
  const uint64_t bits = uint64_t(words[0]) << 32 | words[1];
  return uint64_t((static_cast<unsigned __int128>(bits) * range) >> 64);
}
// Uniform in [low, low + range).
struct Integers {
  using Element = int64_t;
  static constexpr int kWords = 2, kElements = 1;
  int64_t low;
  uint64_t range;

  GRADUS_HD void operator()(const uint32_t* words, int64_t* elements) const {
    elements[0] = int64_t(uint64_t(low) + scaled_bits(words, range));
  }
};

// Returns a uniform index in [place, count), with which the Fisher-Yates shuffle swaps the element at
// `place`.
GRADUS_HD int64_t partner_of(int64_t place, int64_t count, const uint32_t* words) {
  return int64_t(uint64_t(place) + scaled_bits(words, uint64_t(count - place)));
}

// Elements per Philox counter.
template <class Draw> inline constexpr int kPerCounter = 4 / Draw::kWords * Draw::kElements;

// Converts the 4 * counters words of several counters to elements.
template <int counters, class Draw>
GRADUS_HD void make_elements(const Draw& draw, const uint32_t* words, typename Draw::Element* elements) {
  for (int i = 0; i < 4 * counters / Draw::kWords; ++i)
    draw(words + i * Draw::kWords, elements + i * Draw::kElements);
}

}  // namespace gradus::draws
