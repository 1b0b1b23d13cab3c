// The common part of winograd.cc and winograd_stride2.cc, the two Winograd convolutions: divides
// images into tiles of 2x2 output pixels, transforms each tile into `planes` elements per channel, and
// computes one matrix product [tiles, K] by [K, N] per plane, where K and N are the numbers of channels of
// the source and the result. Callers supply the transforms. Images are channels-last f32 or bf16; planes are
// f32. Compiled per instruction set.
#if defined(GRADUS_TENSOR_CPU_CONV_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADUS_TENSOR_CPU_CONV_TILES_INL_H
#undef GRADUS_TENSOR_CPU_CONV_TILES_INL_H
#else
#define GRADUS_TENSOR_CPU_CONV_TILES_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "gradus/tensor/cpu/conv/kernels.h"
#include "gradus/tensor/cpu/conv/products-inl.h"
#include "gradus/tensor/cpu/widen.h"
#include "gradus/tensor/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {

// The tiles of 2x2 output pixels of a batch, numbered in the order image, row of tiles, column of tiles.
struct Tiles {
  explicit Tiles(const Tensor& y)
      : rows((y.size(2) + 1) / 2), columns((y.size(3) + 1) / 2), count(y.size(0) * rows * columns) {}
  int64_t rows, columns, count;
};

// A batch of channels-last images [N, C, H, W] with zero padding of any size. Refers to the tensor's memory.
template <class T> class Image {
 public:
  explicit Image(const Tensor& x)
      : data_(x.ptr<T>()), channels_(x.size(1)), height_(x.size(2)), width_(x.size(3)), zeros_(channels_) {}
  int64_t channels() const { return channels_; }
  // Returns the channels of a pixel, zeros outside of the image.
  const T* at(int64_t n, int64_t h, int64_t w) const {
    return inside(h, w) ? data_ + ((n * height_ + h) * width_ + w) * channels_ : zeros_.data();
  }
  // Returns the channels of a pixel for writing, null outside of the image.
  T* pixel(int64_t n, int64_t h, int64_t w) const {
    return inside(h, w) ? data_ + ((n * height_ + h) * width_ + w) * channels_ : nullptr;
  }

 private:
  bool inside(int64_t h, int64_t w) const { return h >= 0 && h < height_ && w >= 0 && w < width_; }
  T* data_;
  int64_t channels_, height_, width_;
  std::vector<T> zeros_;
};

// Calls f(T()), where T is the element type of an image: bf16 or float.
template <class F> void dispatch_image_type(const Tensor& image, F f) {
  image.dtype() == DType::kBF16 ? f(bf16()) : f(float());
}

// Returns whether the Winograd convolutions support the dtypes and numbers of channels of p.
inline bool supports_winograd(const ConvProblem& p) {
  return p.x.dtype() == p.y.dtype() && is_computed_in_f32(p.x.dtype()) && p.geometry.groups == 1 &&
         p.w.size(0) % kPanel == 0 && p.w.size(1) % kPanel == 0 && p.w.numel() < (int64_t{1} << 30);
}

// The image, and the row and column of tiles, of a tile.
struct TilePosition {
  int64_t n, row, column;
};
inline TilePosition tile_position(const Tiles& tiles, int64_t t) {
  return {t / (tiles.rows * tiles.columns), t / tiles.columns % tiles.rows, t % tiles.columns};
}

// Transforms tiles [first, last) of x into v, at index tile - base. A tile reads kSide x kSide pixels, the first
// tile of an image from row h and column w on (negative: in the padding). transform(pixels, c, to, plane) writes
// the planes of channels [c, c + kLanes), with stride `plane`.
template <int kSide, auto transform, class T, class P>
void pixels_to_planes(const Image<T>& x, const Tiles& tiles, int64_t h, int64_t w, int64_t first,
                      int64_t last, int64_t base, const P& v) {
  const T* pixels[kSide * kSide];
  for (int64_t t = first; t < last; ++t) {
    const auto [n, row, column] = tile_position(tiles, t);
    for (int i = 0; i < kSide * kSide; ++i)
      pixels[i] = x.at(n, 2 * row + h + i / kSide, 2 * column + w + i % kSide);
    for (int64_t c = 0; c < x.channels(); c += kLanes)
      transform(pixels, c, v.at(0, t - base, c), v.plane_stride);
  }
}

// The 2x2 output pixels of a tile, for kLanes channels.
struct OutputTile {
#if HWY_TARGET == HWY_NEON
  HWY_INLINE OutputTile() {}  // g++ for ARM would not inline the implicit one, which has another target
#endif
  Floats pixels[2][2];
};

// The positions of output pixels in the image: pixel (i, j) of all tiles is written to (step * i + row,
// step * j + column).
struct PixelGrid {
  int64_t step = 1, row = 0, column = 0;
};

// Applies the inverse transform to the planes m of tiles [first, last), adds the bias if not null, and writes y's
// channels [channel, channel + channels). inverse_transform(m, plane) returns the OutputTile of kLanes channels.
template <auto inverse_transform, class T>
void planes_to_results(const Image<T>& y, const PixelGrid& at, const Tiles& tiles, const float* bias,
                       int64_t first, int64_t last, int64_t base, const Planes& m, int64_t channel,
                       int64_t channels) {
  T* pixels[4];
  for (int64_t t = first; t < last; ++t) {
    const auto [n, row, column] = tile_position(tiles, t);
    for (int i = 0; i < 4; ++i)
      pixels[i] =
          y.pixel(n, at.step * (2 * row + i / 2) + at.row, at.step * (2 * column + i % 2) + at.column);
    for (int64_t i = 0; i < channels; i += kLanes) {
      const OutputTile s = inverse_transform(m.at(0, t - base) + i, m.plane_stride);
      const Floats b = bias ? load(bias + channel + i) : hn::Zero(kFloats);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k)
        if (pixels[k]) store(pixels[k] + channel + i, s.pixels[k / 2][k % 2] + b);
    }
  }
}

// Returns the stride between planes of K x N filters, padded so that planes do not map to the same cache sets.
inline int64_t filter_plane_stride(int64_t K, int64_t N) { return K * N + kPanel; }

// The products m[plane][tile][n] = sum_k v[plane][tile][k] * filters[plane][k][n], with the functions that
// produce their operands and consume their results. K is divisible by kLanes, N by kPanel.
struct TileProducts {
  int planes;
  int64_t K, N, tiles;  // K: channels of v, N: of m
  Tensor input;         // the source of v, roughly in order of tiles; only prefetched
  int64_t filter_rows;  // work items of fill_filters per kLanes output channels
  // Writes tiles [first, last) to v, at index tile - base.
  std::function<void(int64_t first, int64_t last, int64_t base, const Planes& v)> fill_inputs;
  // Writes the transformed filters of output channels [channel, channel + channels) in panels: to[plane][n /
  // kPanel][k][n % kPanel], where planes have the stride filter_plane_stride(K, channels). Computes work items
  // [first, last); item i has row i % filter_rows of kLanes channels from kLanes * (i / filter_rows) on.
  std::function<void(int64_t channel, int64_t channels, int64_t first, int64_t last, float* to)> fill_filters;
  // Writes the results of tiles [first, last), which are in m at index tile - base. m has the output channels
  // [channel, channel + channels).
  std::function<void(int64_t first, int64_t last, int64_t base, const Planes& m, int64_t channel,
                     int64_t channels)>
      write_results;
};

// For many tiles: all filters are transformed first, and threads divide the tiles. Tiles are processed in
// chunks whose planes stay in the second-level cache until they are multiplied.
inline void convolve_by_tiles(const TileProducts& c) {
  const int64_t plane = filter_plane_stride(c.K, c.N);
  const Tensor filters = scratch(c.planes * plane);
  parallel_for(0, c.filter_rows * c.N / kLanes, 64, [&](int64_t first, int64_t last) {
    c.fill_filters(0, c.N, first, last, filters.ptr<float>());
  });
  const int64_t tiles_in_cache = (640 << 10) / (c.planes * (c.K + c.N) * int64_t(sizeof(float)));
  const int64_t chunk = std::clamp<int64_t>(tiles_in_cache / kMaxRows, 4, 8) * kMaxRows;
  const int64_t shares = std::min<int64_t>(num_threads(), (c.tiles + chunk - 1) / chunk);
  const int64_t v_floats = Planes::floats(c.planes, chunk, c.K),
                floats = v_floats + Planes::floats(c.planes, chunk, c.N);
  const Tensor planes = scratch(shares * floats);
  parallel_for(0, shares, 1, [&](int64_t first_share, int64_t last_share) {
    const Planes v(planes.ptr<float>() + first_share * floats, chunk, c.K);
    const Planes m(v.data + v_floats, chunk, c.N);
    const int64_t end = c.tiles * last_share / shares;
    for (int64_t first = c.tiles * first_share / shares; first < end; first += chunk) {
      const int64_t last = std::min(end, first + chunk);
      c.fill_inputs(first, last, first, v);
      PrefetchPlan prefetch_plan(c.planes * (c.N / kPanel) * ceil_div(last - first, kMaxRows));
      prefetch_plan.add(c.input, last, std::min(end, last + chunk), c.tiles);
      int64_t done = 0;
      for (int64_t p = 0; p < c.planes; ++p)
        for (int64_t n = 0; n < c.N; n += kPanel)
          for_row_blocks(last - first, [&](int64_t row, int64_t rows) {
            kProducts[rows - 1](v.at(p, row), v.row_stride, 1, filters.ptr<float>() + p * plane + n * c.K,
                                kPanel, c.K, m.at(p, row) + n, m.row_stride,
                                prefetch_plan.share(done++, c.K));
          });
      c.write_results(first, last, first, m, 0, c.N);
    }
  });
}

// For many filters: all tiles are transformed first, and threads divide the filters. A panel of filters is
// transformed and stays in the second-level cache while all tiles are multiplied by it.
inline void convolve_by_panels(const TileProducts& c) {
  const int64_t panels = c.N / kPanel, shares = std::min<int64_t>(num_threads(), panels);
  const int64_t plane = filter_plane_stride(c.K, kPanel);
  const int64_t v_floats = Planes::floats(c.planes, c.tiles, c.K);
  const int64_t floats = c.planes * plane + Planes::floats(c.planes, c.tiles, kPanel);
  const Tensor planes = scratch(v_floats + shares * floats);
  const Planes v(planes.ptr<float>(), c.tiles, c.K);
  parallel_for(0, c.tiles, 4, [&](int64_t first, int64_t last) { c.fill_inputs(first, last, 0, v); });
  parallel_for(0, shares, 1, [&](int64_t first_share, int64_t last_share) {
    float* filters = v.data + v_floats + first_share * floats;
    const Planes m(filters + c.planes * plane, c.tiles, kPanel);
    for (int64_t i = panels * first_share / shares; i < panels * last_share / shares; ++i) {
      c.fill_filters(i * kPanel, kPanel, 0, c.filter_rows * kPanel / kLanes, filters);
      for (int64_t p = 0; p < c.planes; ++p)
        for_row_blocks(c.tiles, [&](int64_t row, int64_t rows) {
          kProducts[rows - 1](v.at(p, row), v.row_stride, 1, filters + p * plane, kPanel, c.K, m.at(p, row),
                              m.row_stride, {});
        });
      c.write_results(0, c.tiles, 0, m, i * kPanel, kPanel);
    }
  });
}

// Computes the products on all threads, by one of the two methods. The results do not depend on the number of
// threads.
inline void convolve_by_products(const TileProducts& c) {
  const bool by_panels = c.K * c.N > 256 * 256 && c.tiles <= 512;
  (by_panels ? convolve_by_panels : convolve_by_tiles)(c);
}

// Computes the f32 weight gradient dw[O,C,...] of kTaps taps from kPlanes planes of sums over tiles of dy
// times kParts * C channels of x. fill(first, last, base, d, v) writes the planes of dy and x, as
// PositionSums::compute calls it. inverse_transform(sums, plane, C, dw) computes one filter of dw from its
// sums with the plane stride `plane`.
template <int kPlanes, int kParts, int kTaps, auto inverse_transform, class Fill>
void weight_grad_by_tiles(const Tensor& dw, const Tensor& dy, const Tensor& x, Fill&& fill) {
  const int64_t O = dw.size(0), C = dw.size(1);
  const auto sums =
      PositionSums{.planes = kPlanes, .O = O, .C = kParts * C, .dy = dy, .x = x, .positions = Tiles(dy).count}
          .compute(fill);
  parallel_for(0, O, 1 + 1024 / C, [&](int64_t first, int64_t last) {
    for (int64_t o = first; o < last; ++o) {
      for (int64_t p = 0; p < kPlanes; ++p) sums.total(p, o, kParts * C);
      inverse_transform(sums.planes.at(0, o), sums.planes.plane_stride, C, dw.ptr<float>() + o * C * kTaps);
    }
  });
}

}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
