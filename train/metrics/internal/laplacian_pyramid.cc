#include "gradus/train/metrics/internal/laplacian_pyramid.h"

#include <algorithm>
#include <utility>

namespace gradus::metrics::internal {
namespace {

constexpr int64_t kRadius = 2;  // of the filter

// Pads a row of `width` pixels on both sides.
void fill_edges(double* line, int64_t width, PyramidKind kind) {
  const bool mirror = kind == PyramidKind::kPggan;
  for (int64_t i = 1; i <= kRadius; ++i) {
    line[-i] = mirror ? line[i] : 0;
    line[width - 1 + i] = mirror ? line[width - 1 - i] : 0;
  }
}

// The weights are powers of two and sums of them: sums of u8 stay exact for several levels.
Plane filtered_along_rows(const Plane& x, double gain, PyramidKind kind) {
  Plane y{x.height, x.width};
  std::vector<double> padded(static_cast<size_t>(x.width + 2 * kRadius));
  double* p = padded.data() + kRadius;
  for (int64_t i = 0; i < x.height; ++i) {
    std::copy(x.row(i), x.row(i) + x.width, p);
    fill_edges(p, x.width, kind);
    for (int64_t j = 0; j < x.width; ++j)
      y.row(i)[j] = (p[j - 2] + 4 * p[j - 1] + 6 * p[j] + 4 * p[j + 1] + p[j + 2]) * (gain / 16);
  }
  return y;
}

Plane filtered(const Plane& x, double gain, PyramidKind kind) {
  const Plane across = transposed(filtered_along_rows(x, gain, kind));
  return transposed(filtered_along_rows(across, gain, kind));
}

}  // namespace

Plane half(const Plane& x, PyramidKind kind) {
  const Plane smooth = filtered(x, 1, kind);
  Plane y{x.height / 2, x.width / 2};
  for (int64_t i = 0; i < y.height; ++i)
    for (int64_t j = 0; j < y.width; ++j) y.row(i)[j] = smooth.row(2 * i)[2 * j];
  return y;
}

Plane twice(const Plane& x, PyramidKind kind) {
  Plane wide{2 * x.height, 2 * x.width};
  const int64_t copies = kind == PyramidKind::kMmgen ? 2 : 1;
  for (int64_t i = 0; i < x.height; ++i)
    for (int64_t j = 0; j < x.width; ++j)
      for (int64_t k = 0; k < copies * copies; ++k)
        wide.row(2 * i + k / copies)[2 * j + k % copies] = x.row(i)[j];
  return filtered(wide, kind == PyramidKind::kMmgen ? 1 : 2, kind);
}

Plane laplacian_level(Plane x, int64_t level, int64_t levels, PyramidKind kind) {
  for (int64_t i = 0; i < level; ++i) x = half(x, kind);
  if (level + 1 == levels) return x;
  const Plane coarse = twice(half(x, kind), kind);
  for (size_t i = 0; i < x.pixels.size(); ++i) x.pixels[i] -= coarse.pixels[i];
  return x;
}

}  // namespace gradus::metrics::internal
