// The products of gradus/tensor/cpu/conv/products.h in bf16. A pair of bf16 that are neighbors along the
// inner dim takes the place of a float. The processor multiplies two pairs and adds both products to an f32.
#pragma once

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/cpu/conv/products.h"

namespace gradus::cpu {

#define GRADUS_AVX512_BF16 gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")

// Computes c[R][32] = a[R][K pairs] b[K][32 pairs], rounded to bf16. Steps between a's rows count pairs.
template <int R>
[[GRADUS_AVX512_BF16]] void product_of_pairs(const float* a, int64_t a_row, int64_t a_column, const float* b,
                                             int64_t b_row, int64_t K, bf16* c, int64_t c_row, Ahead ahead) {
  if (!ahead.at) ahead.at = reinterpret_cast<const char*>(b);
  __m512 sum[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    __builtin_prefetch(c + r * c_row, 1);
  }
#pragma GCC unroll 2
  for (int64_t k = 0; k < K; ++k, a += a_column, b += b_row) {
    _mm_prefetch(ahead.at, _MM_HINT_T1);
    ahead.at += ahead.step;
    const auto b0 = __m512bh(_mm512_loadu_ps(b)), b1 = __m512bh(_mm512_loadu_ps(b + kLanes));
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const auto v = __m512bh(_mm512_set1_ps(a[r * a_row]));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], v, b0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], v, b1);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    _mm512_storeu_si512(c + r * c_row, __m512i(_mm512_cvtne2ps_pbh(sum[r][1], sum[r][0])));
}

using ProductOfPairs = void (*)(const float*, int64_t, int64_t, const float*, int64_t, int64_t, bf16*,
                                int64_t, Ahead);
template <size_t... R>
constexpr std::array<ProductOfPairs, kMostRows> make_products_of_pairs(std::index_sequence<R...>) {
  return {&product_of_pairs<int(R) + 1>...};
}
inline constexpr auto kProductsOfPairs = make_products_of_pairs(std::make_index_sequence<kMostRows>());

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
