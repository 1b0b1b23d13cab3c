// The Philox4x32-10 counter-based random number generator for several consecutive counters at once, with vector
// instructions of the baseline instruction set (AVX2 or NEON; Highway's static dispatch). Computes the same bits
// as the scalar draws::philox() in tensor/ops/formulas/random.h.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <cstdint>

#include "gradus/tensor/cpu/vectors-inl.h"
#include "gradus/tensor/ops/formulas/random.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {

inline constexpr int kPhiloxCounters = 8;                 // counters of a block
inline constexpr int kPhiloxWords = 4 * kPhiloxCounters;  // 32-bit words that a block writes

// words[4 * i .. 4 * i + 3] = draws::philox(key, first + i) for 0 <= i < kPhiloxCounters * blocks. `words` has
// room for kPhiloxWords * blocks numbers, without alignment. The 128-bit Philox counter is (first + i,
// key.stream), low half first; the 64-bit Philox key is key.seed. Five times as fast as the scalar version:
// compilers do not vectorize 32 x 32 -> 64 bit products.
inline void philox_words(PhiloxKey key, uint64_t first, int64_t blocks, uint32_t* words) {
  // c[0..3] are the four 32-bit words of the counters, one counter per 64-bit lane. A word is in the lower half of
  // its lane; the upper half is undefined and never used.
  constexpr hn::ScalableTag<uint64_t> tag;
  constexpr hn::Repartition<uint32_t, decltype(tag)> halves;
  using Words = hn::Vec<decltype(tag)>;
  constexpr int kWords = hn::MaxLanes(tag), kVectors = kPhiloxCounters / kWords;
  const auto multiply = [&](Words a, Words b)
                            HWY_ATTR { return hn::MulEven(hn::BitCast(halves, a), hn::BitCast(halves, b)); };
  const Words m0 = hn::Set(tag, draws::kPhiloxM0), m1 = hn::Set(tag, draws::kPhiloxM1);
  const Words low = hn::Set(tag, 0xffffffffu);
  for (; blocks > 0; --blocks, first += kPhiloxCounters, words += kPhiloxWords) {
    Words c[4][kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      c[0][v] = hn::Iota(tag, 0) + hn::Set(tag, first + kWords * v);
      c[1][v] = hn::ShiftRight<32>(c[0][v]);
      c[2][v] = hn::Set(tag, key.stream);
      c[3][v] = hn::ShiftRight<32>(c[2][v]);
    }
    // The words of the key.
    uint32_t k0 = uint32_t(key.seed), k1 = uint32_t(key.seed >> 32);
    for (int round = 0; round < draws::kPhiloxRounds; ++round) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Words p0 = multiply(c[0][v], m0), p1 = multiply(c[2][v], m1);
        c[0][v] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c[1][v]), hn::Set(tag, k0));
        c[1][v] = p1;
        c[2][v] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c[3][v]), hn::Set(tag, k1));
        c[3][v] = p0;
      }
      k0 += draws::kPhiloxW0;
      k1 += draws::kPhiloxW1;
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const Words front = hn::Or(hn::And(c[0][v], low), hn::ShiftLeft<32>(c[1][v])),
                  back = hn::Or(hn::And(c[2][v], low), hn::ShiftLeft<32>(c[3][v]));
      hn::StoreInterleaved2(front, back, tag, reinterpret_cast<uint64_t*>(words + 4 * kWords * v));
    }
  }
}

}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace gradus::cpu {
using HWY_NAMESPACE::kPhiloxCounters, HWY_NAMESPACE::kPhiloxWords, HWY_NAMESPACE::philox_words;
}
