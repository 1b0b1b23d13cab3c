#include "gradus/tensor/cpu/conv/tap_grad.h"

#include <cstring>
#include <vector>

#include "gradus/tensor/cpu/conv/products.h"
#include "gradus/tensor/cpu/register_transpose.h"
#include "gradus/tensor/runtime/processor.h"

// Note [Gradient by taps]
// The weight gradient is a matrix product for each tap (kh, kw) of the filters:
//   dw[o, c] = sum over pixels of dy[pixel, o] x[pixel moved by the tap, c]
// For each tap some hundred pixels of x are copied to where they lie well in the caches. Their products with
// dy are added to the sums while the next pixels are prefetched. oneDNN reads x in place. Where the number of
// channels is a power of two, neighboring pixels then compete for the same places in a cache. Pixels of dy
// compete too, but this matters only above 512 filters: then dy is copied as well.

namespace gradus {

bool prefers_tap_weight_grad(const Tensor& dw, const Tensor& dy, const raw::ConvGeometry& g) {
  if (!cpu::has_avx512() || dw.dtype() != DType::kF32 || g.rank() != 2 || g.groups != 1) return false;
  const int64_t O = dw.size(0), C = dw.size(1);
  const bool one_tap = dw.numel() == O * C;
  return C % cpu::kPanel == 0 && O >= 32 && dy.numel() / dy.size(1) >= 256 &&
         (one_tap ? O >= 128 || O >= C : g.stride[0] * g.stride[1] > 1);
}

namespace {

// dw[c][tap] = by_tap[tap][c]. Registers hold 16 channels of up to 16 taps at a time.
[[gnu::target("avx512f")]] void write_filter(const std::vector<const float*>& by_tap, int64_t C, float* dw) {
  const auto taps = int64_t(by_tap.size());
  if (taps == 1) {
    std::memcpy(dw, by_tap[0], C * sizeof(float));
  } else if (taps <= cpu::kLanes) {
    const auto mask = __mmask16((1u << taps) - 1);
    for (int64_t c = 0; c < C; c += cpu::kLanes) {
      __m512 rows[cpu::kLanes], filters[cpu::kLanes];
      for (int64_t t = 0; t < cpu::kLanes; ++t) rows[t] = _mm512_loadu_ps(by_tap[std::min(t, taps - 1)] + c);
      cpu::transpose(rows, filters);
#pragma GCC unroll 16
      for (int i = 0; i < cpu::kLanes; ++i) _mm512_mask_storeu_ps(dw + (c + i) * taps, mask, filters[i]);
    }
  } else {
    for (int64_t t = 0; t < taps; ++t)
      for (int64_t c = 0; c < C; ++c) dw[c * taps + t] = by_tap[t][c];
  }
}

}  // namespace

void tap_weight_grad(const Tensor& dw, const Tensor& dy, const Tensor& x, const raw::ConvGeometry& g) {
  const int64_t O = dw.size(0), C = dw.size(1), KW = dw.size(3), taps = dw.size(2) * KW;
  const int64_t H = x.size(2), W = x.size(3), P = dy.size(2), Q = dy.size(3);
  const int64_t pixels = x.size(0) * P * Q;
  const bool in_place = O <= 512;
  const auto fill = [&](int64_t first, int64_t last, int64_t base, const cpu::Planes& d,
                        const cpu::Planes& v) {
    for (int64_t i = first; i < last; ++i) {
      if (!in_place) std::memcpy(d.at(0, i - base), dy.ptr<float>() + i * O, O * sizeof(float));
      const int64_t n = i / (P * Q), p = i / Q % P, q = i % Q;
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t h = p * g.stride[0] - g.padding[0] + t / KW * g.dilation[0];
        const int64_t w = q * g.stride[1] - g.padding[1] + t % KW * g.dilation[1];
        float* to = v.at(t, i - base);
        if (h >= 0 && h < H && w >= 0 && w < W)
          std::memcpy(to, x.ptr<float>() + ((n * H + h) * W + w) * C, C * sizeof(float));
        else
          std::memset(to, 0, C * sizeof(float));
      }
    }
  };
  const auto sums = cpu::PositionSums{.planes = taps,
                                      .O = O,
                                      .C = C,
                                      .one_d = true,
                                      .d_is_dy = in_place,
                                      .dy = dy,
                                      .x = x,
                                      .positions = pixels,
                                      .at_once = in_place && taps == 1 && C <= 512 ? 256 : 448}
                        .of(fill);
  parallel_for(0, O, 1 + 16384 / (C * taps), [&](int64_t first, int64_t last) {
    std::vector<const float*> by_tap(taps);
    for (int64_t o = first; o < last; ++o) {
      for (int64_t t = 0; t < taps; ++t) by_tap[t] = sums.total(t, o, C);
      write_filter(by_tap, C, dw.ptr<float>() + o * C * taps);
    }
  });
}

}  // namespace gradus
