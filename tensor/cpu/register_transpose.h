// Transposition within the vector registers of AVX-512.
#pragma once

#include <immintrin.h>

// The AVX-512 header of g++ 12 starts from variables that it does not set, and g++ warns of them.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace gradus::cpu {

// to[c] = column c of the 16 x 16 numbers r.
[[gnu::target("avx512f"), gnu::always_inline]] inline void transpose(const __m512* r, __m512* to) {
  __m512 u[16];  // in u[4 g + c], the l-th quarter is rows 4 g to 4 g + 3 of column 4 l + c
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(r[g], r[g + 1])),
                  b = _mm512_castps_pd(_mm512_unpackhi_ps(r[g], r[g + 1])),
                  c = _mm512_castps_pd(_mm512_unpacklo_ps(r[g + 2], r[g + 3])),
                  d = _mm512_castps_pd(_mm512_unpackhi_ps(r[g + 2], r[g + 3]));
    u[g] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c)), u[g + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    u[g + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    u[g + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 x = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x44),
                 y = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x44),
                 z = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xee),
                 v = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xee);
    to[c] = _mm512_shuffle_f32x4(x, y, 0x88), to[4 + c] = _mm512_shuffle_f32x4(x, y, 0xdd);
    to[8 + c] = _mm512_shuffle_f32x4(z, v, 0x88), to[12 + c] = _mm512_shuffle_f32x4(z, v, 0xdd);
  }
}

}  // namespace gradus::cpu
