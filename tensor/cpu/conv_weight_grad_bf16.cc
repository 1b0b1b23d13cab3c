#include "gradus/tensor/cpu/conv_weight_grad_bf16.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/parallel.h"

// Note [Weight gradient in pairs]
// For each tap (kh, kw) of the filters, dw[o, c] = sum over pixels of dy[pixel, o] x[pixel moved by the tap,
// c]: a product of matrices whose inner dim are the pixels. The processor multiplies pairs of bf16 and adds
// both products to an f32, so pixels are taken two at a time: a block of them is packed so that the two
// elements of a pair are neighbours, in panels of 32 channels of x and 32 filters of dy, which pass through
// the first cache. A tile is 32 channels by 8 filters, its 256 sums in registers. Threads share out the
// panels of x and ranges of filters, so no sum is split between them, and the result does not depend on their
// number. What a tap moves out of the image is packed as zeros.

#define GRADUS_AVX512_BF16 [[gnu::target("avx512f,avx512bw,avx512bf16")]]

namespace gradus {
namespace {

constexpr int kPanel = 32, kFilters = 8;  // of a panel; of a tile

constexpr int64_t kFewSums = 1 << 17;  // stay in the second cache

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t panels(int64_t n) { return ceil_div(n, kPanel); }
// Elements from one panel of so many pairs to the next: no power of two, whose lines would share a cache set.
int64_t panel_step(int64_t pairs) { return (pairs + 1) * 2 * kPanel; }

// Up to 32 elements, then zeros.
GRADUS_AVX512_BF16 inline __m512i load(const bf16* p, int64_t n) {
  return n >= kPanel ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16((__mmask32(1) << n) - 1, p);
}

// Packs elements [first, last) of the pixels' rows into panels of 32, each [pairs][32][2].
GRADUS_AVX512_BF16 void pack(bf16* to, const std::vector<const bf16*>& pixels, int64_t first, int64_t last) {
  const int64_t pairs = int64_t(pixels.size()) / 2, step = panel_step(pairs);
  for (int64_t k = 0; k < pairs; ++k) {
    const bf16 *a = pixels[2 * k], *b = pixels[2 * k + 1];
    bf16* at = to + k * 2 * kPanel;
    for (int64_t c = first; c < last; c += kPanel, at += step) {
      const __m512i u = load(a + c, last - c), v = load(b + c, last - c);
      // Within each 128 bits unpacking gives 4 pairs; the pieces are then put in order.
      const __m512i low = _mm512_unpacklo_epi16(u, v), high = _mm512_unpackhi_epi16(u, v);
      const __m512i front = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
      const __m512i back = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
      _mm512_store_si512(at, _mm512_permutex2var_epi64(low, front, high));
      _mm512_store_si512(at + kPanel, _mm512_permutex2var_epi64(low, back, high));
    }
  }
}

// sums[8][32] = or += over all pairs, dy[8][2] of a panel times x[32][2].
GRADUS_AVX512_BF16 void add_tile(float* sums, bool fresh, const bf16* dy, const bf16* x, int64_t pairs) {
  __m512 s[kFilters][2];
#pragma GCC unroll 8
  for (int o = 0; o < kFilters; ++o) {
    s[o][0] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(sums + o * kPanel);
    s[o][1] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(sums + o * kPanel + 16);
  }
  for (int64_t k = 0; k < pairs; ++k, dy += 2 * kPanel, x += 2 * kPanel) {
    const auto low = (__m512bh)_mm512_load_si512(x), high = (__m512bh)_mm512_load_si512(x + kPanel);
#pragma GCC unroll 8
    for (int o = 0; o < kFilters; ++o) {
      int pair;
      std::memcpy(&pair, dy + 2 * o, sizeof(pair));
      const auto g = (__m512bh)_mm512_set1_epi32(pair);
      s[o][0] = _mm512_dpbf16_ps(s[o][0], low, g);
      s[o][1] = _mm512_dpbf16_ps(s[o][1], high, g);
    }
  }
#pragma GCC unroll 8
  for (int o = 0; o < kFilters; ++o) {
    _mm512_store_ps(sums + o * kPanel, s[o][0]);
    _mm512_store_ps(sums + o * kPanel + 16, s[o][1]);
  }
}

// Fetches rows of memory into the cache, some lines at a time.
class Ahead {
 public:
  Ahead(const bf16* first, int64_t rows, int64_t length, int64_t step)
      : row_(first), rows_(rows), length_(length), step_(step) {}
  int64_t lines() const { return rows_ * ((length_ + kLine - 1) / kLine); }
  void fetch(int64_t lines) {
    for (; lines > 0 && rows_ > 0; --lines) {
      __builtin_prefetch(row_ + at_, 0, 2);
      if ((at_ += kLine) < length_) continue;
      at_ = 0, row_ += step_, --rows_;
    }
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(bf16);
  const bf16* row_;
  int64_t rows_, length_, step_, at_ = 0;
};

// Where the first tap sees a pixel.
struct Seen {
  int64_t h, w;    // may be outside of the image
  int64_t offset;  // of that place in x
};

class WeightGrad {
 public:
  WeightGrad(const Tensor& dw, const Tensor& dy, const Tensor& x, const raw::ConvGeometry& g)
      : g_(g),
        x_(x.ptr<bf16>()),
        dy_(dy.ptr<bf16>()),
        C_(x.size(1)),
        H_(x.size(2)),
        W_(x.size(3)),
        O_(dy.size(1)),
        P_(dy.size(2)),
        Q_(dy.size(3)),
        KW_(dw.size(3)),
        taps_(dw.size(2) * KW_),
        pixels_(x.size(0) * P_ * Q_),
        x_pixels_(x.size(0) * H_ * W_),
        zeros_(std::max(C_, O_)) {
    // What is packed stays in the second cache; an even number.
    const int64_t most = std::clamp<int64_t>((5 << 17) / (O_ + std::min<int64_t>(C_, 512)), 64, 384);
    block_ = ceil_div(pixels_, ceil_div(pixels_, most));
    block_ += block_ % 2;
    if (taps_ * C_ * O_ <= kFewSums)
      slices_ = std::clamp<int64_t>(pixels_ / block_, 1, num_threads());
    else
      cut_filters();
    sums_ = empty({slices_, taps_ * panels(C_) * panels(O_) * kPanel * kPanel});
  }

  void run() const {
    const int64_t all = parts_ * taps_ * panels(C_);
    if (slices_ == 1)
      return parallel_for(0, all, 1, [&](int64_t first, int64_t last) { add(0, first, last); });
    parallel_for(0, slices_, 1, [&](int64_t first, int64_t last) {
      for (int64_t s = first; s < last; ++s) add(s, 0, all);
    });
  }

  // sums[kh, kw, c / 32, o, c % 32] -> dw[o, c, kh, kw]
  void write(const Tensor& dw) const {
    const int64_t size = size_of(dw.dtype());
    const auto convert = cpu::converter(dw.dtype(), DType::kF32);
    char* const to = static_cast<char*>(dw.raw_ptr());
    parallel_for(0, O_, 1 + 16384 / (C_ * taps_), [&](int64_t first, int64_t last) {
      std::vector<float> row(kPanel * taps_);
      for (int64_t o = first; o < last; ++o)
        for (int64_t p = 0; p < panels(C_); ++p) {
          const int64_t count = std::min<int64_t>(kPanel, C_ - p * kPanel);
          for (int64_t t = 0; t < taps_; ++t) {
            const float* from = sums_at(0, t, p, o);
            for (int64_t i = 0; i < count; ++i) row[i * taps_ + t] = from[i];
            for (int64_t slice = 1; slice < slices_; ++slice) {
              const float* more = sums_at(slice, t, p, o);
              for (int64_t i = 0; i < count; ++i) row[i * taps_ + t] += more[i];
            }
          }
          convert(count * taps_, to + (o * C_ + p * kPanel) * taps_ * size, 1, row.data(), 1);
        }
    });
  }

 private:
  // Each thread packs the filters that it works on for all of its channels, and its channels for each part of
  // the filters. Takes as many parts as make that the least.
  void cut_filters() {
    const int threads = num_threads();
    auto packed = [&](int64_t parts) { return O_ / parts + taps_ * C_ * parts / threads; };
    for (int n = 2; n <= threads; ++n)
      if (threads % n == 0 && n <= panels(O_) && packed(n) < packed(parts_)) parts_ = n;
  }
  int64_t first_filter(int64_t part) const { return std::min(O_, panels(O_) * part / parts_ * kPanel); }

  float* sums_at(int64_t slice, int64_t tap, int64_t panel, int64_t o) const {
    return sums_.ptr<float>() +
           (((slice * taps_ + tap) * panels(C_) + panel) * panels(O_) * kPanel + o) * kPanel;
  }

  // Works on the panels of x [first, last), which are numbered by part of the filters, tap and channels.
  void add(int64_t slice, int64_t first, int64_t last) const {
    const int64_t count = panels(C_), step = panel_step(block_ / 2);
    const Tensor x = empty({std::min(last - first, count) * step}, {DType::kBF16});
    const Tensor dy = empty({panels(O_) * step}, {DType::kBF16});
    std::vector<Seen> seen;
    std::vector<const bf16*> pixels;
    const int64_t slice_begin = pixels_ * slice / slices_, slice_end = pixels_ * (slice + 1) / slices_;
    // The next block's pixels are fetched while this one's are multiplied.
    const int64_t c0 = last - first < count ? first % count * kPanel : 0;
    const int64_t c1 =
        last - first < count && first % count < (last - 1) % count ? ((last - 1) % count + 1) * kPanel : C_;
    const int64_t tiles = (last - first) * panels(O_) * kPanel / kFilters / parts_;
    for (int64_t at = slice_begin; at < slice_end; at += block_) {
      const int64_t end = std::min(at + block_, slice_end), next = std::min(end + block_, slice_end);
      const int64_t x_end = x_pixels_ * end / pixels_;
      Ahead next_dy(dy_ + end * O_, next - end, O_, O_);
      Ahead next_x(x_ + x_end * C_ + c0, x_pixels_ * next / pixels_ - x_end, std::min(c1, C_) - c0, C_);
      const int64_t dy_lines = next_dy.lines() / tiles + 1, x_lines = next_x.lines() / tiles + 1;
      look(at, end, seen);
      int64_t packed_part = -1;
      for (int64_t i = first; i < last;) {
        const int64_t part = i / (count * taps_), tap = i / count % taps_, from = i % count;
        const int64_t to = std::min(count, from + last - i);
        const int64_t o0 = first_filter(part), o1 = first_filter(part + 1);
        if (part != packed_part) {
          packed_part = part;
          pixels.clear();
          for (int64_t pixel = at; pixel < end; ++pixel) pixels.push_back(dy_ + pixel * O_);
          if (pixels.size() % 2) pixels.push_back(zeros_.data());
          pack(dy.ptr<bf16>(), pixels, o0, o1);
        }
        move(seen, tap, pixels);
        pack(x.ptr<bf16>(), pixels, from * kPanel, std::min(C_, to * kPanel));
        const int64_t pairs = pixels.size() / 2, panel = panel_step(pairs);
        for (int64_t p = from; p < to; ++p)
          for (int64_t o = o0; o < o1; o += kFilters) {
            add_tile(sums_at(slice, tap, p, o), at == slice_begin,
                     dy.ptr<bf16>() + (o - o0) / kPanel * panel + (o - o0) % kPanel * 2,
                     x.ptr<bf16>() + (p - from) * panel, pairs);
            next_dy.fetch(dy_lines), next_x.fetch(x_lines);
          }
        i += to - from;
      }
    }
  }

  // Lists what the first tap sees of the pixels [at, end) of dy.
  void look(int64_t at, int64_t end, std::vector<Seen>& seen) const {
    seen.clear();
    int64_t n = at / (P_ * Q_), p = at / Q_ % P_, q = at % Q_;
    for (; at < end; ++at) {
      const int64_t h = p * g_.stride[0] - g_.padding[0], w = q * g_.stride[1] - g_.padding[1];
      seen.push_back({h, w, ((n * H_ + h) * W_ + w) * C_});
      if (++q < Q_) continue;
      q = 0;
      if (++p == P_) p = 0, ++n;
    }
  }
  // Lists what another tap sees: zeros outside of the image, and to make the number even.
  void move(const std::vector<Seen>& seen, int64_t tap, std::vector<const bf16*>& pixels) const {
    const int64_t dh = tap / KW_ * g_.dilation[0], dw = tap % KW_ * g_.dilation[1], H = H_, W = W_;
    const bf16 *from = x_ + (dh * W_ + dw) * C_, *zeros = zeros_.data();
    pixels.resize(seen.size() + seen.size() % 2);
    pixels.back() = zeros;
    const bf16** to = pixels.data();
    for (const Seen& s : seen) {
      const bool inside = uint64_t(s.h + dh) < uint64_t(H) && uint64_t(s.w + dw) < uint64_t(W);
      *to++ = inside ? from + s.offset : zeros;
    }
  }

  const raw::ConvGeometry& g_;
  const bf16 *x_, *dy_;
  const int64_t C_, H_, W_, O_, P_, Q_, KW_, taps_, pixels_, x_pixels_;
  int64_t block_;       // pixels that are packed at a time
  int64_t parts_ = 1;   // of the filters
  int64_t slices_ = 1;  // of the pixels
  std::vector<bf16> zeros_;
  Tensor sums_;
};

// db[o] = sum of dy over the pixels.
void bias_grad(const Tensor& db, const Tensor& dy) {
  const int64_t O = dy.size(1), pixels = dy.numel() / O;
  const Tensor sums = empty({O});
  parallel_for(0, O, 1 + 16384 / pixels, [&](int64_t first, int64_t last) {
    float* __restrict sum = sums.ptr<float>();
    std::fill(sum + first, sum + last, 0.0f);
    for (int64_t i = 0; i < pixels; ++i) {
      const bf16* __restrict row = dy.ptr<bf16>() + i * O;
      for (int64_t o = first; o < last; ++o) sum[o] += float(row[o]);
    }
  });
  cpu::converter(db.dtype(), DType::kF32)(O, db.raw_ptr(), 1, sums.raw_ptr(), 1);
}

}  // namespace

bool has_bf16_weight_grad(const Tensor& dy, const Tensor& x, const raw::ConvGeometry& g) {
  static const bool has_bf16 = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw");
  return has_bf16 && dy.dtype() == DType::kBF16 && g.rank() == 2 && g.groups == 1 && x.size(1) >= 16 &&
         dy.size(1) >= kFilters;
}

void bf16_weight_grad(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                      const raw::ConvGeometry& g) {
  WeightGrad grad(dw, dy, x, g);
  grad.run();
  grad.write(dw);
  if (db.defined()) bias_grad(db, dy);
}

}  // namespace gradus
