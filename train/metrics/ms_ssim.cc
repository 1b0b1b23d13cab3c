// Multi-scale structural similarity of image pairs u8 [N, C, H, W] (Wang et al., 2003; formula in ms_ssim.h),
// on the host in f64. A Plane is one channel of one image. Images are compared in parallel. H and W are
// multiples of 16, so that four 2x2 poolings are exact.
#include "gradus/train/metrics/ms_ssim.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/train/metrics/internal/plane.h"

namespace gradus::metrics {
namespace {

using internal::Plane;

constexpr const char* kName = "ms_ssim";
constexpr std::array kWeights = {0.0448, 0.2856, 0.3001, 0.2363, 0.1333};
constexpr int64_t kLevels = kWeights.size(), kSizeMultiple = 1 << (kLevels - 1);

// Returns the `size` weights of a centered Gaussian with sum 1 and standard deviation 1.5 size / 11.
std::vector<double> window(int64_t size) {
  const double deviation = 1.5 * double(size) / 11;
  std::vector<double> w;
  for (int64_t i = 0; i < size; ++i) {
    const double x = (double(i) - double(size - 1) / 2) / deviation;
    w.push_back(std::exp(-x * x / 2));
  }
  const double sum = std::accumulate(w.begin(), w.end(), 0.0);
  for (double& v : w) v /= sum;
  return w;
}

// Correlates each row with w, without padding: the width shrinks by w.size() - 1.
Plane smooth_rows(const Plane& x, const std::vector<double>& w) {
  const int64_t size = static_cast<int64_t>(w.size());
  Plane y{x.height, x.width - size + 1};
  for (int64_t i = 0; i < y.height; ++i)
    for (int64_t k = 0; k < size; ++k)
      for (int64_t j = 0; j < y.width; ++j) y.row(i)[j] += w[k] * x.row(i)[j + k];
  return y;
}

// Filters rows, then columns: the separable 2-dim window.
Plane smooth(const Plane& x, const std::vector<double>& w) {
  return transposed(smooth_rows(transposed(smooth_rows(x, w)), w));
}

// Element-wise.
Plane product(const Plane& a, const Plane& b) {
  Plane y{a.height, a.width};
  std::transform(a.pixels.begin(), a.pixels.end(), b.pixels.begin(), y.pixels.begin(), std::multiplies<>());
  return y;
}

// 2x2 average pooling.
Plane pooled(const Plane& x) {
  Plane y{x.height / 2, x.width / 2};
  for (int64_t i = 0; i < y.height; ++i)
    for (int64_t j = 0; j < y.width; ++j)
      y.row(i)[j] = (x.row(2 * i)[2 * j] + x.row(2 * i)[2 * j + 1] + x.row(2 * i + 1)[2 * j] +
                     x.row(2 * i + 1)[2 * j + 1]) /
                    4;
  return y;
}

// Means over positions: of SSIM (`ssim`), and of its contrast-structure factor (`contrast`).
struct Similarity {
  double ssim = 0, contrast = 0;
};

// Compares planes of equal size at one scale. A variance is E[x^2] - E[x]^2 over the window.
Similarity compare(const Plane& a, const Plane& b) {
  constexpr double kC1 = 0.01 * 255 * 0.01 * 255, kC2 = 0.03 * 255 * 0.03 * 255;
  const std::vector<double> w = window(std::min({int64_t{11}, a.height, a.width}));
  const Plane mean_a = smooth(a, w), mean_b = smooth(b, w);
  const Plane aa = smooth(product(a, a), w), bb = smooth(product(b, b), w), ab = smooth(product(a, b), w);
  Similarity sum;
  for (size_t i = 0; i < aa.pixels.size(); ++i) {
    const double ma = mean_a.pixels[i], mb = mean_b.pixels[i];
    const double variances = aa.pixels[i] - ma * ma + bb.pixels[i] - mb * mb;
    const double contrast = (2 * (ab.pixels[i] - ma * mb) + kC2) / (variances + kC2);
    sum.contrast += contrast;
    sum.ssim += contrast * (2 * ma * mb + kC1) / (ma * ma + mb * mb + kC1);
  }
  const double count = double(aa.pixels.size());
  return {sum.ssim / count, sum.contrast / count};
}

// Returns the similarity at each level, averaged over channels.
std::array<Similarity, kLevels> levels_of(const Tensor& a, const Tensor& b, int64_t image) {
  std::array<Similarity, kLevels> levels;
  const int64_t channels = a.size(1);
  for (int64_t c = 0; c < channels; ++c) {
    Plane x = internal::plane_of(a, image, c), y = internal::plane_of(b, image, c);
    for (Similarity& level : levels) {
      const Similarity s = compare(x, y);
      level.ssim += s.ssim / double(channels), level.contrast += s.contrast / double(channels);
      x = pooled(x), y = pooled(y);
    }
  }
  return levels;
}

// The weighted geometric mean over levels: contrast at all but the last, SSIM at the last.
double similarity(const Tensor& a, const Tensor& b, int64_t image) {
  const std::array<Similarity, kLevels> levels = levels_of(a, b, image);
  double all = 1;
  for (int64_t i = 0; i < kLevels; ++i) {
    const double s = i + 1 < kLevels ? levels[i].contrast : levels[i].ssim;
    all *= std::pow(std::max(s, 0.0), kWeights[i]);
  }
  return all;
}

}  // namespace

Tensor ms_ssim(const Tensor& a, const Tensor& b) {
  const auto off = no_record();
  const Tensor x = internal::checked_images(kName, "a", a), y = internal::checked_images(kName, "b", b);
  if (x.shape() != y.shape())
    throw ShapeError(kName, "expected pairs of the same size: a ", describe(a), ", b ", describe(b));
  if (x.size(2) % kSizeMultiple || x.size(3) % kSizeMultiple)
    throw ShapeError(kName, "expected sizes that are multiples of ", kSizeMultiple, ": a ", describe(a));
  Tensor result = empty({x.size(0)}, {.dtype = DType::kF64});
  double* p = result.mutable_data<double>();
  parallel_for(0, x.size(0), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) p[i] = similarity(x, y, i);
  });
  return result;
}

double ms_ssim_diversity(const Tensor& images) {
  const auto off = no_record();
  const Tensor x = internal::checked_images("ms_ssim_diversity", "images", images);
  const int64_t pairs = x.size(0) / 2;
  if (pairs < 1) throw ValueError("ms_ssim_diversity", "expected at least 2 images, got ", describe(images));
  const Tensor paired = unflatten(narrow(x, 0, 0, 2 * pairs), 0, {pairs, 2});
  return mean(ms_ssim(select(paired, 1, 0), select(paired, 1, 1))).item<double>();
}

}  // namespace gradus::metrics
