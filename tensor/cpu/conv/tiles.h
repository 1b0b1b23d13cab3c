// Convolution by tiles: an image is cut into tiles of a few pixels, each tile is transformed into numbers of
// several planes, and each plane has a matrix product of its own. What the transforms are, the caller says.
// For processors with AVX-512.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gradus/tensor/cpu/conv/products.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

// The tiles of 2x2 pixels of all images of a batch, numbered by image, row of tiles, column of tiles.
struct Tiles {
  explicit Tiles(const Tensor& y)
      : rows((y.size(2) + 1) / 2), columns((y.size(3) + 1) / 2), count(y.size(0) * rows * columns) {}
  int64_t rows, columns, count;
};

// An image of C channels. Its surroundings are zeros.
class Image {
 public:
  explicit Image(const Tensor& x)
      : data_(x.ptr<float>()),
        channels_(x.size(1)),
        height_(x.size(2)),
        width_(x.size(3)),
        zeros_(channels_) {}
  int64_t channels() const { return channels_; }
  const float* at(int64_t n, int64_t h, int64_t w) const {
    return inside(h, w) ? data_ + ((n * height_ + h) * width_ + w) * channels_ : zeros_.data();
  }
  // Returns null outside of the image.
  float* pixel(int64_t n, int64_t h, int64_t w) const {
    return inside(h, w) ? data_ + ((n * height_ + h) * width_ + w) * channels_ : nullptr;
  }

 private:
  bool inside(int64_t h, int64_t w) const { return h >= 0 && h < height_ && w >= 0 && w < width_; }
  float* data_;
  int64_t channels_, height_, width_;
  std::vector<float> zeros_;
};

struct Place {
  int64_t n, row, column;
};
inline Place place_of(const Tiles& tiles, int64_t t) {
  return {t / (tiles.rows * tiles.columns), t / tiles.columns % tiles.rows, t % tiles.columns};
}

// The distance of the planes of K x N filters: such that planes do not compete for places in a cache.
inline int64_t plane_of_filters(int64_t K, int64_t N) { return K * N + kPanel; }

// result[plane][tile][N] = inputs[plane][tile][K] filters[plane][K][N]. K is divisible by 16, N by 32.
struct TileProducts {
  int planes;
  int64_t K, N, tiles;
  Tensor input;         // of which tiles are made, in nearly their order: the source to prefetch
  int64_t filter_rows;  // steps of fill_filters for 16 channels of the result
  // Writes tiles [first, last) to v, at `tile - base`.
  std::function<void(int64_t first, int64_t last, int64_t base, const Planes& v)> fill_inputs;
  // Writes filters for `channels` channels of the result from `channel`, in panels: to[plane][n / 32][k][n %
  // 32], with planes at a distance of plane_of_filters(K, channels). Step i writes those of 16 channels, from
  // 16 (i / filter_rows), and of row i % filter_rows.
  std::function<void(int64_t channel, int64_t channels, int64_t first, int64_t last, float* to)> fill_filters;
  // Writes the results of tiles [first, last), which are in m at `tile - base`. m has `channels` channels of
  // the result from `channel`.
  std::function<void(int64_t first, int64_t last, int64_t base, const Planes& m, int64_t channel,
                     int64_t channels)>
      write_results;
};

// Computes the products on all threads. The results do not depend on the number of threads.
void convolve_by_products(const TileProducts& c);

}  // namespace gradus::cpu
