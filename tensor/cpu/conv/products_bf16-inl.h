// The matrix multiplication microkernels of gradus/tensor/cpu/product_blocks-inl.h in bf16 with AVX512_BF16
// (vdpbf16ps). A pair of bf16, adjacent along K, takes the place of a float. Included only for AVX-512; callers
// check cpu::has_avx512_bf16().
#pragma once

#include "gradus/tensor/cpu/conv/bf16_pairs.h"
#include "gradus/tensor/cpu/conv/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {

// c[r][n] = sum_k a[r][2k] * b[2k][n] + a[r][2k + 1] * b[2k + 1][n] for r < R, k < K and n < 32, summed in f32 and
// rounded to bf16. a and b point to pairs of bf16; the strides a_row, a_column and b_row count pairs, c_row counts
// bf16.
template <int R>
[[GRADUS_AVX512_BF16]] void product_of_pairs(const float* a, int64_t a_row, int64_t a_column, const float* b,
                                             int64_t b_row, int64_t K, bf16* c, int64_t c_row,
                                             Prefetch prefetch) {
  if (!prefetch.address) prefetch.address = reinterpret_cast<const char*>(b);
  __m512 sum[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    __builtin_prefetch(c + r * c_row, 1);
  }
#pragma GCC unroll 2
  for (int64_t k = 0; k < K; ++k, a += a_column, b += b_row) {
    __builtin_prefetch(prefetch.address, 0, 2);
    prefetch.address += prefetch.step;
    const auto b0 = __m512bh(_mm512_loadu_ps(b)), b1 = __m512bh(_mm512_loadu_ps(b + kLanes));
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const auto v = as_pairs(_mm512_set1_ps(a[r * a_row]));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], v, b0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], v, b1);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
    _mm512_storeu_si512(c + r * c_row, __m512i(_mm512_cvtne2ps_pbh(sum[r][1], sum[r][0])));
}

using ProductOfPairs = void (*)(const float*, int64_t, int64_t, const float*, int64_t, int64_t, bf16*,
                                int64_t, Prefetch);
template <size_t... R>
constexpr std::array<ProductOfPairs, kMaxRows> make_products_of_pairs(std::index_sequence<R...>) {
  return {&product_of_pairs<int(R) + 1>...};
}
inline constexpr auto kProductsOfPairs = make_products_of_pairs(std::make_index_sequence<kMaxRows>());

}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
