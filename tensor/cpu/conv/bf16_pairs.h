// Helpers for AVX512_BF16 dot products (vdpbf16ps): each f32 lane adds a[2i] b[2i] + a[2i+1] b[2i+1] of bf16
// vectors a and b. Uses intrinsics, because Highway 1.0 has no such operation. For x86-64 only.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "gradus/tensor/base/dtype.h"

// g++ 12's AVX-512 header causes these warnings.
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace gradus::cpu {

// For functions with these instructions. Call them only if has_avx512_bf16().
#define GRADUS_AVX512_BF16 gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")

// Reinterprets a 64-byte vector as 32 bf16. The asm works around a crash of Clang 16 for broadcast operands.
template <class V> [[GRADUS_AVX512_BF16]] inline __m512bh as_pairs(V v) {
#if defined(__clang__) && __clang_major__ < 17
  asm("" : "+v"(v));
#endif
  return __m512bh(v);
}

// Two rows a and b of 32 bf16, interleaved into 32 pairs (a[i], b[i]): `low` has the first 16 pairs, `high` the
// others.
struct InterleavedPairs {
  __m512i low, high;
};
[[GRADUS_AVX512_BF16]] inline InterleavedPairs interleave(__m512i a, __m512i b) {
  alignas(64) static constexpr int16_t kLow[] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                 37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  return {_mm512_permutex2var_epi16(a, low, b), _mm512_permutex2var_epi16(a, high, b)};
}

}  // namespace gradus::cpu
