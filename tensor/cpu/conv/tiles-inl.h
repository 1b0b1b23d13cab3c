// Convolution by tiles: an image is cut into tiles of a few pixels, each tile is transformed into numbers of
// several planes, and each plane has a matrix product of its own. What the transforms are, the caller says.
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

// The tiles of 2x2 pixels of all images of a batch, numbered by image, row of tiles, column of tiles.
struct Tiles {
  explicit Tiles(const Tensor& y)
      : rows((y.size(2) + 1) / 2), columns((y.size(3) + 1) / 2), count(y.size(0) * rows * columns) {}
  int64_t rows, columns, count;
};

// An image of C channels, f32 or bf16. Its surroundings are zeros.
template <class T> class Image {
 public:
  explicit Image(const Tensor& x)
      : data_(x.ptr<T>()), channels_(x.size(1)), height_(x.size(2)), width_(x.size(3)), zeros_(channels_) {}
  int64_t channels() const { return channels_; }
  const T* at(int64_t n, int64_t h, int64_t w) const {
    return inside(h, w) ? data_ + ((n * height_ + h) * width_ + w) * channels_ : zeros_.data();
  }
  // Returns null outside of the image.
  T* pixel(int64_t n, int64_t h, int64_t w) const {
    return inside(h, w) ? data_ + ((n * height_ + h) * width_ + w) * channels_ : nullptr;
  }

 private:
  bool inside(int64_t h, int64_t w) const { return h >= 0 && h < height_ && w >= 0 && w < width_; }
  T* data_;
  int64_t channels_, height_, width_;
  std::vector<T> zeros_;
};

// Calls f(T()) for the type of an image's elements.
template <class F> void with_type_of(const Tensor& image, F f) {
  image.dtype() == DType::kBF16 ? f(bf16()) : f(float());
}

// Returns whether images of these dtypes and filters of these channels are computed by tiles.
inline bool has_tiles(const ConvProblem& p) {
  return p.x.dtype() == p.y.dtype() && is_computed_in_f32(p.x.dtype()) && p.geometry.groups == 1 &&
         p.w.size(0) % kPanel == 0 && p.w.size(1) % kPanel == 0 && p.w.numel() < (int64_t{1} << 30);
}

struct Place {
  int64_t n, row, column;
};
inline Place place_of(const Tiles& tiles, int64_t t) {
  return {t / (tiles.rows * tiles.columns), t / tiles.columns % tiles.rows, t % tiles.columns};
}

// Writes tiles [first, last) of x to v, at `tile - base`. A tile is made of kSide x kSide pixels. Those of
// the first tile begin at (h, w). transform(pixels, c, to, plane) writes the planes of kLanes channels.
template <int kSide, auto transform, class T, class P>
void pixels_to_planes(const Image<T>& x, const Tiles& tiles, int64_t h, int64_t w, int64_t first,
                      int64_t last, int64_t base, const P& v) {
  const T* pixels[kSide * kSide];
  for (int64_t t = first; t < last; ++t) {
    const auto [n, row, column] = place_of(tiles, t);
    for (int i = 0; i < kSide * kSide; ++i)
      pixels[i] = x.at(n, 2 * row + h + i / kSide, 2 * column + w + i % kSide);
    for (int64_t c = 0; c < x.channels(); c += kLanes) transform(pixels, c, v.at(0, t - base, c), v.plane);
  }
}

// The 2x2 results of a tile.
struct Square {
#if HWY_TARGET == HWY_NEON
  HWY_INLINE Square() {}  // g++ for ARM would make one for another level, and not inline it
#endif
  Floats at[2][2];
};

// Which pixels of an image they are: neighbors, or every other one.
struct Places {
  int64_t step = 1, row = 0, column = 0;
};

// Writes the results of tiles [first, last), plus bias if not null, to y. `m` holds `channels` of y's
// channels from `channel`. contract(m, plane) makes the Square of kLanes channels.
template <auto contract, class T>
void planes_to_results(const Image<T>& y, const Places& at, const Tiles& tiles, const float* bias,
                       int64_t first, int64_t last, int64_t base, const Planes& m, int64_t channel,
                       int64_t channels) {
  T* pixels[4];
  for (int64_t t = first; t < last; ++t) {
    const auto [n, row, column] = place_of(tiles, t);
    for (int i = 0; i < 4; ++i)
      pixels[i] =
          y.pixel(n, at.step * (2 * row + i / 2) + at.row, at.step * (2 * column + i % 2) + at.column);
    for (int64_t i = 0; i < channels; i += kLanes) {
      const Square s = contract(m.at(0, t - base) + i, m.plane);
      const Floats b = bias ? load(bias + channel + i) : hn::Zero(kFloats);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k)
        if (pixels[k]) store(pixels[k] + channel + i, s.at[k / 2][k % 2] + b);
    }
  }
}

// The distance of the planes of K x N filters: such that planes do not compete for places in a cache.
inline int64_t plane_of_filters(int64_t K, int64_t N) { return K * N + kPanel; }

// result[plane][tile][N] = inputs[plane][tile][K] filters[plane][K][N]. K is divisible by kLanes,
// N by kPanel.
struct TileProducts {
  int planes;
  int64_t K, N, tiles;
  Tensor input;         // of which tiles are made, in nearly their order: the source to prefetch
  int64_t filter_rows;  // steps of fill_filters for kLanes channels of the result
  // Writes tiles [first, last) to v, at `tile - base`.
  std::function<void(int64_t first, int64_t last, int64_t base, const Planes& v)> fill_inputs;
  // Writes filters for `channels` channels of the result from `channel`, in panels:
  // to[plane][n / kPanel][k][n % kPanel], with planes at a distance of plane_of_filters(K, channels). Step i
  // writes those of kLanes channels, from kLanes (i / filter_rows), and of row i % filter_rows.
  std::function<void(int64_t channel, int64_t channels, int64_t first, int64_t last, float* to)> fill_filters;
  // Writes the results of tiles [first, last), which are in m at `tile - base`. m has `channels` channels of
  // the result from `channel`.
  std::function<void(int64_t first, int64_t last, int64_t base, const Planes& m, int64_t channel,
                     int64_t channels)>
      write_results;
};

// For many tiles. All filters are transformed first. Each thread takes some of the tiles, a few at a time, so
// that their planes stay in the second-level cache until they are multiplied.
inline void convolve_by_tiles(const TileProducts& c) {
  const int64_t plane = plane_of_filters(c.K, c.N);
  const Tensor filters = scratch(c.planes * plane);
  parallel_for(0, c.filter_rows * c.N / kLanes, 64, [&](int64_t first, int64_t last) {
    c.fill_filters(0, c.N, first, last, filters.ptr<float>());
  });
  const int64_t fit = (640 << 10) / (c.planes * (c.K + c.N) * int64_t(sizeof(float)));
  const int64_t chunk = std::clamp<int64_t>(fit / kMaxRows, 4, 8) * kMaxRows;
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
      Upcoming upcoming(c.planes * (c.N / kPanel) * ceil_div(last - first, kMaxRows));
      upcoming.add(c.input, last, std::min(end, last + chunk), c.tiles);
      int64_t done = 0;
      for (int64_t p = 0; p < c.planes; ++p)
        for (int64_t n = 0; n < c.N; n += kPanel)
          for_row_blocks(last - first, [&](int64_t row, int64_t rows) {
            kProducts[rows - 1](v.at(p, row), v.row, 1, filters.ptr<float>() + p * plane + n * c.K, kPanel,
                                c.K, m.at(p, row) + n, m.row, upcoming.share(done++, c.K));
          });
      c.write_results(first, last, first, m, 0, c.N);
    }
  });
}

// For many filters. Each thread takes some of the filters, a panel at a time. A panel is transformed and
// stays in the second-level cache while the planes of all tiles are multiplied by it.
inline void convolve_by_panels(const TileProducts& c) {
  const int64_t panels = c.N / kPanel, shares = std::min<int64_t>(num_threads(), panels);
  const int64_t plane = plane_of_filters(c.K, kPanel);
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
          kProducts[rows - 1](v.at(p, row), v.row, 1, filters + p * plane, kPanel, c.K, m.at(p, row), m.row,
                              {});
        });
      c.write_results(0, c.tiles, 0, m, i * kPanel, kPanel);
    }
  });
}

// Computes the products on all threads. The results do not depend on the number of threads.
inline void convolve_by_products(const TileProducts& c) {
  const bool by_panels = c.K * c.N > 256 * 256 && c.tiles <= 512;
  (by_panels ? convolve_by_panels : convolve_by_tiles)(c);
}

}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
