// Pairs of bf16 for instructions that multiply two pairs and add both products to an f32. These are
// intrinsics of AVX-512: Highway 1.0 has no such products.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "gradus/tensor/base/dtype.h"

// The AVX-512 header of g++ 12 starts from variables that it does not set, and g++ warns of them.
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace gradus::cpu {

#define GRADUS_AVX512_BF16 gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")

// Returns a register as pairs. Clang 16 crashes where it sees that all of them are one pair.
template <class V> [[GRADUS_AVX512_BF16]] inline __m512bh as_pairs(V v) {
#if defined(__clang__) && __clang_major__ < 17
  asm("" : "+v"(v));
#endif
  return __m512bh(v);
}

// Two rows of 32 bf16, interleaved into 32 pairs (upper, lower): the first 16 pairs and the last 16.
struct Zipped {
  __m512i low, high;
};
[[GRADUS_AVX512_BF16]] inline Zipped zip(__m512i a, __m512i b) {
  alignas(64) static constexpr int16_t kLow[] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                 37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  return {_mm512_permutex2var_epi16(a, low, b), _mm512_permutex2var_epi16(a, high, b)};
}

}  // namespace gradus::cpu
