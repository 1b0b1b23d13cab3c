// The weight gradient of 2-dim convolution of one group over bf16 images, with AVX512_BF16 dot products over
// pairs of pixels: x [N, C, H, W] and dy [N, O, P, Q], channels-last, give dw [O, C, KH, KW], row-major, of
// bf16 or f32. Sums are f32, and rounded once. db, if defined, is the sum of dy over pixels (bias_grad).
#include "gradus/tensor/cpu/conv/kernels.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "gradus/tensor/cpu/conv/bf16_pairs.h"
#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/processor.h"

// Note [Weight gradient in pairs]
// For each tap (kh, kw) the weight gradient is a matrix product with the output pixels as the inner dim:
//   dw[o, c] = sum over pixels of dy[pixel, o] * x[input pixel of the tap, c]
// The instruction vdpbf16ps adds the products of two pairs of bf16 to an f32, so pixels are processed in
// pairs. Operands are packed so that the two elements of a pair are adjacent: x in panels of 32 channels, dy
// in tiles of 8 filters. A panel times a tile gives 256 sums, which stay in registers.
//
// The pixels of dy are divided into blocks that are long enough to load and store the sums rarely. Within a block,
// a tile of dy stays in the first-level cache while panels of x, for all taps, are read from the second-level
// cache. Four tiles (a strip) are packed at a time. Data to be packed next is prefetched meanwhile.
//
// Input pixels in the padding are packed as zeros. If output rows have an even number of pixels, no pair
// crosses the end of a row. Then x is packed by columns if KH > 1 and rows are short: once for each kw, and
// each kh starts at another row of that copy. Otherwise x is packed once for each tap, and pairs may cross
// the ends of rows.
//
// Threads divide the panels of x, and the filters too if there are few panels, so each sum belongs to one
// thread. If there are few sums, threads divide the pixels instead, and the partial sums of the threads are
// added at the end.

namespace gradus {
namespace {

constexpr int kPanel = 32, kFilters = 8;  // channels of a panel, filters of a tile
constexpr int kTileSums = kPanel * kFilters;
constexpr int64_t kStrip = 32;  // filters that are packed at a time
constexpr int64_t kStripSums = kPanel * kStrip;

constexpr int64_t kMaxCachedSums = 1 << 17;  // sums that fit into the second-level cache
constexpr int64_t kMaxPixels = 1024;  // per block, so that a tile of dy fits into the first-level cache
constexpr int64_t kMaxOverlappingPixels =
    1792;                                   // the same if adjacent blocks both pack the rows at their border
constexpr int64_t kPackedPixels = 8 << 10;  // packed pixels of x, over panels and taps or columns
constexpr int64_t kPackedElements = 3
                                    << 16;  // packed dy and x of a block; the next block needs as much cache

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t panels(int64_t n) { return ceil_div(n, kPanel); }
// Strides in elements between panels, and between tiles, of `pairs` pairs: padded, because strides of a power
// of two map to the same cache sets.
int64_t panel_step(int64_t pairs) { return (pairs * 2 + 1) * kPanel; }
int64_t tile_step(int64_t pairs) { return pairs * 2 * kFilters + 32; }

// Loads up to 32 elements, then zeros.
[[GRADUS_AVX512_BF16]] inline __m512i load(const bf16* p, int64_t n) {
  return n >= kPanel ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16((__mmask32(1) << n) - 1, p);
}

// Packs channels [first, last) of the pixels, an even number, into panels of 32 channels, each [pairs][32][2].
[[GRADUS_AVX512_BF16]] void pack_panels(bf16* to, const std::vector<const bf16*>& pixels, int64_t first,
                                        int64_t last) {
  const int64_t pairs = int64_t(pixels.size()) / 2, step = panel_step(pairs);
  constexpr int64_t kPrefetchPixels = 48;  // pixels
  for (int64_t k = 0; k < pairs; ++k) {
    const bf16 *a = pixels[2 * k], *b = pixels[2 * k + 1];
    const bf16 *later = pixels[std::min(2 * k + kPrefetchPixels, 2 * pairs - 2)],
               *next = pixels[std::min(2 * k + kPrefetchPixels, 2 * pairs - 2) + 1];
    bf16* at = to + k * 2 * kPanel;
    for (int64_t c = first; c < last; c += kPanel, at += step) {
      __builtin_prefetch(later + c), __builtin_prefetch(next + c);
      const cpu::InterleavedPairs z = cpu::interleave(load(a + c, last - c), load(b + c, last - c));
      _mm512_store_si512(at, z.low);
      _mm512_store_si512(at + kPanel, z.high);
    }
  }
}

// Stores the lower 32 bytes of v to `to`, the upper ones to `to + step`.
[[GRADUS_AVX512_BF16]] inline void store_halves(bf16* to, int64_t step, __m512i v) {
  _mm256_store_si256((__m256i*)to, __builtin_shufflevector(v, v, 0, 1, 2, 3));
  _mm256_store_si256((__m256i*)(to + step), __builtin_shufflevector(v, v, 4, 5, 6, 7));
}

// Packs up to 32 filters of `count` consecutive pixels of dy [pixels, O] into 4 tiles of 8 filters, each
// [pairs][8][2]. An odd number of pixels is padded with zeros.
[[GRADUS_AVX512_BF16]] void pack_strip(bf16* to, const bf16* dy, int64_t filters, int64_t O, int64_t count) {
  const int64_t pairs = ceil_div(count, 2), step = tile_step(pairs);
  constexpr int64_t kPrefetchPixels = 48;  // pixels
  for (int64_t k = 0; k < pairs; ++k, to += 2 * kFilters, dy += 2 * O) {
    __builtin_prefetch(dy + kPrefetchPixels * O), __builtin_prefetch(dy + (kPrefetchPixels + 1) * O);
    const __m512i zeros = _mm512_setzero_si512();
    const cpu::InterleavedPairs z =
        cpu::interleave(load(dy, filters), 2 * k + 1 < count ? load(dy + O, filters) : zeros);
    store_halves(to, step, z.low), store_halves(to + 2 * step, step, z.high);
  }
}

// `pairs` pairs that are consecutive in a tile of dy, from pair `dy` on, and in a panel of x, from pair `x` on.
struct Run {
  int64_t dy, x, pairs;
};

// Prefetches `rows` rows of `length` elements into the second-level cache, spread over the steps of a computation.
class RowPrefetcher {
 public:
  RowPrefetcher(const bf16* first, int64_t rows, int64_t length, int64_t step)
      : row_(first), rows_(length > 0 ? rows : 0), length_(length), step_(step) {}
  // Spreads the remaining prefetches over `steps` steps.
  void spread(int64_t steps) { rate_ = (rows_ * ceil_div(length_, kLine) * kUnit + steps - 1) / steps; }
  // Issues the prefetches that are due after `steps` more steps.
  void advance(int64_t steps) {
    for (credit_ += rate_ * steps; credit_ >= kUnit && rows_ > 0; credit_ -= kUnit) {
      __builtin_prefetch(row_ + at_, 0, 2);
      if ((at_ += kLine) < length_) continue;
      at_ = 0, row_ += step_, --rows_;
    }
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(bf16), kUnit = 1024;
  const bf16* row_;
  int64_t rows_, length_, step_, at_ = 0, rate_ = 0, credit_ = 0;
};

// For a tile of 8 filters o and a panel of 32 channels c, += or, with `overwrite`, =:
//   sums[o][c] += sum over the runs' pairs of dy[pair][o][0] * x[pair][c][0] + dy[pair][o][1] * x[pair][c][1]
[[GRADUS_AVX512_BF16]] void add_tile(float* sums, bool overwrite, const bf16* dy, const bf16* x,
                                     const Run* runs, int64_t count, RowPrefetcher& next_dy,
                                     RowPrefetcher& next_x) {
  constexpr int64_t kPairs = 16;
  __m512 s[kFilters][2];
#pragma GCC unroll 8
  for (int o = 0; o < kFilters; ++o) {
    s[o][0] = overwrite ? _mm512_setzero_ps() : _mm512_load_ps(sums + o * kPanel);
    s[o][1] = overwrite ? _mm512_setzero_ps() : _mm512_load_ps(sums + o * kPanel + 16);
  }
  for (const Run* run = runs; run != runs + count; ++run) {
    const bf16 *g = dy + run->dy * 2 * kFilters, *v = x + run->x * 2 * kPanel;
    for (int64_t left = run->pairs; left > 0; left -= kPairs) {
      for (const bf16* end = g + std::min(left, kPairs) * 2 * kFilters; g != end;
           g += 2 * kFilters, v += 2 * kPanel) {
        const auto low = (__m512bh)_mm512_load_si512(v), high = (__m512bh)_mm512_load_si512(v + kPanel);
#pragma GCC unroll 8
        for (int o = 0; o < kFilters; ++o) {
          int pair;
          std::memcpy(&pair, g + 2 * o, sizeof(pair));
          const auto both = cpu::as_pairs(_mm512_set1_epi32(pair));
          s[o][0] = _mm512_dpbf16_ps(s[o][0], low, both);
          s[o][1] = _mm512_dpbf16_ps(s[o][1], high, both);
        }
      }
      next_dy.advance(kPairs), next_x.advance(kPairs);
    }
  }
#pragma GCC unroll 8
  for (int o = 0; o < kFilters; ++o) {
    _mm512_store_ps(sums + o * kPanel, s[o][0]);
    _mm512_store_ps(sums + o * kPanel + 16, s[o][1]);
  }
}

[[GRADUS_AVX512_BF16]] inline __m512 unpack_low(__m512 a, __m512 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
[[GRADUS_AVX512_BF16]] inline __m512 unpack_high(__m512 a, __m512 b) {
  return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}

// row[c * taps + t] = sums[t * kStripSums + c] for 32 channels.
[[GRADUS_AVX512_BF16]] void transpose_taps(float* row, const float* sums, int64_t taps) {
  int64_t t = 0;
  for (; t + 4 <= taps; t += 4)
    for (int c = 0; c < kPanel; c += 16) {
      const float* from = sums + t * kStripSums + c;
      const __m512 a0 = _mm512_load_ps(from), a1 = _mm512_load_ps(from + kStripSums),
                   a2 = _mm512_load_ps(from + 2 * kStripSums), a3 = _mm512_load_ps(from + 3 * kStripSums);
      const auto b0 = (__m512d)unpack_low(a0, a1), b1 = (__m512d)unpack_high(a0, a1),
                 b2 = (__m512d)unpack_low(a2, a3), b3 = (__m512d)unpack_high(a2, a3);
      // Each group of 128 bits has four taps of one channel.
      const __m512d quads[] = {__builtin_shufflevector(b0, b2, 0, 8, 2, 10, 4, 12, 6, 14),
                               __builtin_shufflevector(b0, b2, 1, 9, 3, 11, 5, 13, 7, 15),
                               __builtin_shufflevector(b1, b3, 0, 8, 2, 10, 4, 12, 6, 14),
                               __builtin_shufflevector(b1, b3, 1, 9, 3, 11, 5, 13, 7, 15)};
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        float* to = row + (c + i) * taps + t;
        _mm_storeu_pd((double*)to, __builtin_shufflevector(quads[i], quads[i], 0, 1));
        _mm_storeu_pd((double*)(to + 4 * taps), __builtin_shufflevector(quads[i], quads[i], 2, 3));
        _mm_storeu_pd((double*)(to + 8 * taps), __builtin_shufflevector(quads[i], quads[i], 4, 5));
        _mm_storeu_pd((double*)(to + 12 * taps), __builtin_shufflevector(quads[i], quads[i], 6, 7));
      }
    }
  for (; t < taps; ++t)
    for (int c = 0; c < kPanel; ++c) row[c * taps + t] = sums[t * kStripSums + c];
}

// to[i] = from[i] for i < n, rounded to bf16 if `to` is bf16.
[[GRADUS_AVX512_BF16]] void write_row(bf16* to, const float* from, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm256_storeu_si256((__m256i*)(to + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + i)));
  if (i == n) return;
  const __mmask16 tail = (1 << (n - i)) - 1;
  _mm256_mask_storeu_epi16(to + i, tail, (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(tail, from + i)));
}
void write_row(float* to, const float* from, int64_t n) { std::copy_n(from, n, to); }

// A block of dy's pixels.
struct Block {
  int64_t begin, end;
  std::vector<const bf16*> source_pixels;  // pixels of x to pack, an even number for each tap or column
  std::vector<Run> runs;                   // [taps][runs per tap]
  int64_t pairs() const { return ceil_div(end - begin, 2); }
  int64_t x_pairs() const { return int64_t(source_pixels.size()) / 2; }
};

// The range [first, last) of panels or strips.
struct Range {
  int64_t first, last;
};

// One weight gradient: chooses block sizes and how threads divide the work, then computes dw.
class WeightGrad {
 public:
  explicit WeightGrad(const ConvProblem& p) : p_(p) {
    const int64_t threads = num_threads(), copies = by_columns_ ? KW_ * g_.stride[0] : taps_;
    const bool overlap = by_columns_ && g_.stride[0] == 1;
    int64_t max_pixels = std::min(overlap ? kMaxOverlappingPixels : kMaxPixels, kPackedPixels / copies);
    // The packed block and the next block must fit into the second-level cache.
    if (sums_fit_cache_) max_pixels = std::min({max_pixels, kPackedElements / (O_ + C_), pixels_ / threads});
    choose_blocks(std::max<int64_t>(max_pixels, 64));
    groups_ = ceil_div(panels(C_), std::max<int64_t>(1, kPackedPixels / (copies * block_)));
    if (sums_fit_cache_) return;
    // Balances the threads: the number of parts is made divisible by the number of threads, by smaller groups
    // of panels or, if there are few panels, by dividing the filters.
    if (panels(C_) >= 4 * threads) groups_ = ceil_div(groups_, threads) * threads;
    parts_ = std::min(strips_, threads / std::gcd(groups_, threads));
  }

  void run() const { sums_fit_cache_ ? divide_pixels() : divide_channels(); }

 private:
  // Divides the pixels into blocks of about `max_pixels`: whole rows if x is packed by columns, else an even
  // number of pixels.
  void choose_blocks(int64_t max_pixels) {
    const int64_t unit = by_columns_ ? Q_ : 2, units = ceil_div(pixels_, unit);
    block_ = ceil_div(units, ceil_div(units, std::max<int64_t>(1, max_pixels / unit))) * unit;
    blocks_ = ceil_div(pixels_, block_);
  }
  int64_t first_panel(int64_t group) const { return panels(C_) * group / groups_; }

  void divide_channels() const {
    parallel_for(0, groups_ * parts_, 1, [&](int64_t first, int64_t last) {
      Block b;
      for (int64_t i = first; i < last; ++i) sum_and_write(b, i / parts_, i % parts_, i + 1 < last);
    });
  }

  // Computes and writes dw of a part of the filters and a group of panels. `b` caches the last block between
  // calls. `has_next`: the calling thread will compute the next part too, whose data is prefetched.
  void sum_and_write(Block& b, int64_t group, int64_t part, bool has_next) const {
    const int64_t p0 = first_panel(group), p1 = first_panel(group + 1);
    const Range strips{strips_ * part / parts_, strips_ * (part + 1) / parts_};
    const int64_t size = (p1 - p0) * taps_ * kStripSums, step = blocks_ == 1 ? 0 : size;
    const Tensor sums = empty({blocks_ == 1 ? size : size * (strips.last - strips.first)}, {DType::kF32});
    for (int64_t i = 0; i < blocks_; ++i) {
      list_pixels(b, i);
      const bool last = i + 1 == blocks_;
      const int64_t next_p1 = has_next && part + 1 == parts_ ? first_panel(group + 2) : p1;
      RowPrefetcher next_x = last ? prefetch_x(0, {p1, next_p1}) : prefetch_x(i + 1, {p0, p1});
      multiply(
          b, {p0, p1}, strips, next_x, i == 0,
          [&](int64_t strip) { return sums.ptr<float>() + (strip - strips.first) * step; },
          [&](int64_t strip) {
            if (last) write(sums.ptr<float>() + (strip - strips.first) * step, strip, p0, p1);
          });
    }
  }

  void divide_pixels() const {
    const int64_t slices = std::min<int64_t>(blocks_, num_threads());
    const int64_t size = panels(C_) * taps_ * kStripSums, all = strips_ * size;
    const Tensor sums = empty({slices, all}, {DType::kF32});
    parallel_for(0, slices, 1, [&](int64_t first, int64_t last) {
      for (int64_t s = first; s < last; ++s)
        sum_slice(sums.ptr<float>() + s * all, blocks_ * s / slices, blocks_ * (s + 1) / slices);
    });
    parallel_for(0, strips_, 1 + 16384 / size, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        float* __restrict const sum = sums.ptr<float>() + t * size;
        for (int64_t s = 1; s < slices; ++s) {
          const float* __restrict more = sum + s * all;
          for (int64_t i = 0; i < size; ++i) sum[i] += more[i];
        }
        write(sum, t, 0, panels(C_));
      }
    });
  }

  // sums[strips][panels][taps][32][32] = sums over the blocks [first, last).
  void sum_slice(float* sums, int64_t first, int64_t last) const {
    Block b;
    for (int64_t i = first; i < last; ++i) {
      list_pixels(b, i);
      // Prefetches the next block's pixels while this block's are multiplied.
      RowPrefetcher next_x = i + 1 < last ? prefetch_x(i + 1, {0, panels(C_)}) : prefetch_x(0, {0, 0});
      for (int64_t group = 0; group < groups_; ++group) {
        const Range p{first_panel(group), first_panel(group + 1)};
        multiply(
            b, p, {0, strips_}, next_x, i == first,
            [&](int64_t strip) { return sums + (strip * panels(C_) + p.first) * taps_ * kStripSums; },
            [](int64_t) {});
      }
    }
  }

  // For each strip: sums(strip)[panels][taps][32][32] += the strip of dy times panels of x (= if
  // `overwrite`), then done(strip).
  template <class S, class F>
  void multiply(const Block& b, Range panels, Range strips, RowPrefetcher& next_x, bool overwrite, S sums,
                F done) const {
    const int64_t runs = int64_t(b.runs.size()) / taps_, count = panels.last - panels.first;
    const Tensor x = empty({count * panel_step(b.x_pairs())}, {DType::kBF16});
    pack_panels(x.ptr<bf16>(), b.source_pixels, panels.first * kPanel, std::min(C_, panels.last * kPanel));
    const Tensor dy = empty({kStrip / kFilters * tile_step(b.pairs())}, {DType::kBF16});
    next_x.spread(count * taps_ * (strips.last - strips.first) * (kStrip / kFilters) * b.pairs());
    for (int64_t strip = strips.first; strip < strips.last; ++strip) {
      const int64_t filters = std::min(kStrip, O_ - strip * kStrip), tiles = ceil_div(filters, kFilters);
      pack_strip(dy.ptr<bf16>(), dy_ + b.begin * O_ + strip * kStrip, filters, O_, b.end - b.begin);
      const bool has_next = strip + 1 < strips.last;
      RowPrefetcher next_dy = has_next ? prefetch_dy(b.begin, b.end, strip + 1)
                                       : prefetch_dy(b.end, std::min(pixels_, b.end + block_), strips.first);
      for (int64_t t = 0; t < tiles; ++t) {
        float* to = sums(strip) + t * kTileSums;
        const bf16* panel = x.ptr<bf16>();
        if (t + 1 == tiles) next_dy.spread(count * taps_ * b.pairs());
        for (int64_t p = 0; p < count; ++p, panel += panel_step(b.x_pairs()))
          for (int64_t tap = 0; tap < taps_; ++tap, to += kStripSums)
            add_tile(to, overwrite, dy.ptr<bf16>() + t * tile_step(b.pairs()), panel,
                     b.runs.data() + tap * runs, runs, next_dy, next_x);
      }
      done(strip);
    }
  }
  RowPrefetcher prefetch_dy(int64_t begin, int64_t end, int64_t strip) const {
    return RowPrefetcher(dy_ + begin * O_ + strip * kStrip, end - begin,
                         std::min(kStrip, O_ - strip * kStrip), O_);
  }

  // Writes sums[panels][taps][32][32] of the panels [p0, p1) to dw[o, c, kh, kw] of a strip.
  void write(const float* sums, int64_t strip, int64_t p0, int64_t p1) const {
    dw_.dtype() == DType::kBF16 ? write_as<bf16>(sums, strip, p0, p1) : write_as<float>(sums, strip, p0, p1);
  }
  template <class T> void write_as(const float* sums, int64_t strip, int64_t p0, int64_t p1) const {
    const int64_t c0 = p0 * kPanel, length = (std::min(C_, p1 * kPanel) - c0) * taps_;
    const int64_t last = std::min(O_, (strip + 1) * kStrip);
    std::vector<float> row(taps_ == 1 ? 0 : kPanel * taps_);
    for (int64_t o = strip * kStrip; o < last; ++o) {
      T* to = dw_.ptr<T>() + (o * C_ + c0) * taps_;
      const T* later = dw_.ptr<T>() + (std::min(o + 6, last - 1) * C_ + c0) * taps_;
      for (int64_t i = 0; i < length; i += 64 / int64_t(sizeof(T))) __builtin_prefetch(later + i, 1);
      for (int64_t p = p0; p < p1; ++p, to += kPanel * taps_) {
        const int64_t count = std::min<int64_t>(kPanel, C_ - p * kPanel);
        const float* from = sums + (p - p0) * taps_ * kStripSums + o % kStrip * kPanel;
        if (taps_ > 1) transpose_taps(row.data(), from, taps_);
        write_row(to, taps_ > 1 ? row.data() : from, count * taps_);
      }
    }
  }

  int64_t end_of(int64_t block) const { return std::min(pixels_, (block + 1) * block_); }
  // Approximately the pixels of x that a block reads, in the channels of `panels`, for prefetching.
  RowPrefetcher prefetch_x(int64_t block, Range panels) const {
    const int64_t begin = x_pixels_ * (block * block_) / pixels_, end = x_pixels_ * end_of(block) / pixels_;
    const int64_t c = panels.first * kPanel, length = std::min(C_, panels.last * kPanel) - c;
    return RowPrefetcher(x_ + begin * C_ + c, end - begin, length, C_);
  }

  // Sets b to block number `block`: lists the pixels of x that its taps read, and the runs of pairs.
  void list_pixels(Block& b, int64_t block) const {
    const int64_t begin = block * block_;
    if (b.begin == begin && !b.runs.empty()) return;
    b = {begin, end_of(block), {}, {}};
    by_columns_ ? list_by_columns(b) : list_by_taps(b);
  }
  void list_by_taps(Block& b) const {
    for (int64_t tap = 0; tap < taps_; ++tap) {
      b.runs.push_back({0, b.x_pairs(), b.pairs()});
      for (int64_t at = b.begin; at < b.end;) {
        const int64_t row = at / Q_, q = at % Q_, count = std::min(Q_ - q, b.end - at);
        append_pixels(b, row / P_, row % P_ * g_.stride[0] + tap / KW_ * g_.dilation[0], tap % KW_, q, count);
        at += count;
      }
      if (b.source_pixels.size() % 2) b.source_pixels.push_back(zeros_.data());
    }
  }
  // Rows of x are ordered by their remainder modulo the stride, so that the rows that one tap reads are
  // consecutive.
  void list_by_columns(Block& b) const {
    const int64_t first = b.begin / Q_, last = b.end / Q_, stride = g_.stride[0], dilation = g_.dilation[0];
    const int64_t images = (last - 1) / P_ - first / P_ + 1;
    b.runs.resize(taps_ * images);
    for (int64_t kw = 0; kw < KW_; ++kw)
      for (int64_t row = first, i = 0; row < last; ++i) {
        const int64_t n = row / P_, rows = std::min(last, (n + 1) * P_) - row;
        const int64_t height = (rows - 1) * stride + (KH_ - 1) * dilation + 1;
        for (int64_t phase = 0; phase < stride; ++phase) {
          for (int64_t kh = 0; kh < KH_; ++kh)
            if (kh * dilation % stride == phase)
              b.runs[(kh * KW_ + kw) * images + i] = {
                  (row - first) * Q_ / 2, b.x_pairs() + kh * dilation / stride * Q_ / 2, rows * Q_ / 2};
          for (int64_t h = phase; h < height; h += stride)
            append_pixels(b, n, row % P_ * stride + h, kw, 0, Q_);
        }
        row += rows;
      }
  }
  // Appends the pixels of x that filter column kw reads in row h of the padded image n, for output pixels
  // [q, q + count).
  void append_pixels(Block& b, int64_t n, int64_t h, int64_t kw, int64_t q, int64_t count) const {
    h -= g_.padding[0];
    const bool inside = uint64_t(h) < uint64_t(H_);
    const bf16 *const row = x_ + (n * H_ + h) * W_ * C_, *const zeros = zeros_.data();
    int64_t w = q * g_.stride[1] + kw * g_.dilation[1] - g_.padding[1];
    b.source_pixels.resize(b.source_pixels.size() + count);
    for (auto to = b.source_pixels.end() - count; to != b.source_pixels.end(); ++to, w += g_.stride[1])
      *to = inside && uint64_t(w) < uint64_t(W_) ? row + w * C_ : zeros;
  }
  const ConvProblem& p_;
  const raw::ConvGeometry& g_ = p_.geometry;
  const Tensor& dw_ = p_.w;
  const bf16 *x_ = p_.x.ptr<bf16>(), *dy_ = p_.y.ptr<bf16>();
  const int64_t C_ = p_.x.size(1), H_ = p_.x.size(2), W_ = p_.x.size(3);
  const int64_t O_ = p_.y.size(1), P_ = p_.y.size(2), Q_ = p_.y.size(3);
  const int64_t KH_ = p_.w.size(2), KW_ = p_.w.size(3), taps_ = KH_ * KW_, strips_ = ceil_div(O_, kStrip);
  const int64_t pixels_ = p_.x.size(0) * P_ * Q_, x_pixels_ = p_.x.size(0) * H_ * W_;
  const bool by_columns_ = KH_ > 1 && Q_ % 2 == 0 && Q_ <= kMaxOverlappingPixels / 4;
  const bool sums_fit_cache_ = taps_ * C_ * O_ <= kMaxCachedSums;
  int64_t block_, blocks_;  // pixels of a block; blocks
  int64_t groups_;          // groups of panels of x; one group is packed at a time
  int64_t parts_ = 1;       // of the filters, for different threads
  std::vector<bf16> zeros_ = std::vector<bf16>(std::max(C_, O_));
};

bool is_profitable(const ConvProblem& p) {
  return cpu::has_avx512_bf16() && p.y.dtype() == DType::kBF16 && p.geometry.rank() == 2 &&
         p.geometry.groups == 1 && p.x.size(1) >= 16 && p.y.size(1) >= kFilters;
}
void weight_grad(const ConvProblem& p) {
  WeightGrad(p).run();
  if (p.bias.defined()) bias_grad(p.bias, p.y);
}

constexpr ConvKernels kPairsOfPixels = {.weight_grad = {"pairs of pixels", is_profitable, weight_grad}};

}  // namespace

const ConvKernels& bf16_weight_grad_kernels() { return kPairsOfPixels; }

}  // namespace gradus

#endif
