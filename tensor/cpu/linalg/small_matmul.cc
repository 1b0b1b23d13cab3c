// The f32 product of small matrices, for which the overhead of oneDNN would take longer than the product:
// out[m][n] = sum_k a[m][k] b[k][n] + bias[n].
#include "gradus/tensor/cpu/linalg/matmul_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/linalg/small_matmul.cc"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/foreach_target.h>

#include "gradus/tensor/cpu/product_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

// Computes one panel of kPanel columns after the other. A panel of b is packed unless it is whole and its rows are
// contiguous; the last one is padded with zeros.
void small_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const int64_t M = out.size(0), N = out.size(1), K = a.size(1);
  const StridedMatrix left{a.ptr<float>(), a.stride(0), a.stride(1)};
  const int64_t b_row = b.stride(0), b_column = b.stride(1);
  alignas(64) float packed[kMaxSmallSize * kPanel], sums[kMaxSmallSize * kPanel];
  for (int64_t n = 0; n < N; n += kPanel) {
    const int64_t columns = std::min<int64_t>(kPanel, N - n);
    const float* panel = b.ptr<float>() + n * b_column;
    float* const y = out.ptr<float>() + n;
    const bool is_whole = columns == kPanel;
    if (b_column == 1 && is_whole) {
      multiply_panels(left, M, panel, b_row, 0, K, y, N, kPanel, false);
    } else {
      if (b_row == 1) {
        copy_transposed(panel, b_column, columns, K, packed);
      } else {
        std::fill_n(packed, is_whole ? 0 : K * kPanel, 0.f);
        for (int64_t k = 0; k < K; ++k)
          for (int64_t j = 0; j < columns; ++j) packed[k * kPanel + j] = panel[k * b_row + j * b_column];
      }
      float* const to = is_whole ? y : sums;
      multiply_panels(left, M, packed, kPanel, 0, K, to, is_whole ? N : kPanel, kPanel, false);
      if (!is_whole) copy_rows(sums, kPanel, M, columns, 1, y, N, false);
    }
    if (!bias.defined()) continue;
    const float* const added = bias.ptr<float>() + n;
    for (int64_t m = 0; m < M; ++m)
      for (int64_t j = 0; j < columns; ++j) y[m * N + j] += added[j];
  }
}

}  // namespace
}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradus {

void small_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  GRADUS_DISPATCH(small_matmul)(out, a, b, bias);
}

}  // namespace gradus
#endif
