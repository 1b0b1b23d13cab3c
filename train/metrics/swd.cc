// The sliced Wasserstein distance of two sets of images u8 [N, C, H, W]. At each level of Laplacian pyramids:
// cuts random 7x7 patches, normalizes each channel over all patches of a set, projects the patches onto
// random directions, and averages |sorted a - sorted b|. Host code, parallel over images, channels and
// directions. The random choices come from a generator of the given seed, or from the caller.
#include "gradus/train/metrics/swd.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/tensor_checks.h"
#include "gradus/train/metrics/internal/plane.h"

namespace gradus::metrics {
namespace {

using internal::Plane;

constexpr const char* kName = "sliced_wasserstein";
// A patch has kPatchRadius pixels on each side of its center.
constexpr int64_t kPatchRadius = 3, kPatch = 2 * kPatchRadius + 1, kPatchArea = kPatch * kPatch;
constexpr int64_t kMinSize = 16;  // minimum height and width of the last level, in pixels

// Returns the number of levels. Throws unless each size but the last is even.
int64_t levels_of(const Tensor& images) {
  int64_t height = images.size(2), width = images.size(3), levels = 1;
  if (std::min(height, width) < kMinSize)
    throw ShapeError(kName, "expected images of at least ", kMinSize, " pixels: ", describe(images));
  for (; std::min(height, width) / 2 >= kMinSize; ++levels) {
    if (height % 2 || width % 2)
      throw ShapeError(kName, "expected sizes that can be halved down to ", kMinSize, " pixels, not ", height,
                       " x ", width, ": ", describe(images));
    height /= 2, width /= 2;
  }
  return levels;
}

struct ImagePair {
  Tensor a, b;
};

ImagePair checked(const Tensor& a, const Tensor& b) {
  const ImagePair pair{internal::checked_images(kName, "a", a), internal::checked_images(kName, "b", b)};
  if (a.shape() != b.shape())
    throw ShapeError(kName, "expected as many images of the same size: a ", describe(a), ", b ", describe(b));
  if (a.size(0) < 1) throw ValueError(kName, "expected images, got ", describe(a));
  return pair;
}

// Centers of patches (row, column), i64 [images, patches, 2], uniform over all patches inside the image.
Tensor draw_positions(int64_t images, int64_t patches, int64_t height, int64_t width) {
  return stack({randint(kPatchRadius, height - kPatchRadius, {images, patches}),
                randint(kPatchRadius, width - kPatchRadius, {images, patches})},
               2);
}

// Unit vectors f64 [count, size], uniform over the sphere.
Tensor draw_directions(int64_t count, int64_t size) {
  const Tensor x = randn({count, size}, {.dtype = DType::kF64});
  return x / norm(x, {1}, 2, true);
}

std::vector<SlicedWassersteinChoices> draw(const Tensor& images, const SlicedWassersteinOptions& o) {
  check_bounds(kName, "patches", o.patches, 1, 1 << 16);
  check_bounds(kName, "directions", o.directions, 1, 1 << 16);
  Context own = Context::current().snapshot();
  own.generator = std::make_shared<RandomGenerator>(o.seed);
  const ContextScope scope(own);
  std::vector<SlicedWassersteinChoices> choices;
  const int64_t levels = levels_of(images), n = images.size(0);
  for (int64_t k = 0; k < levels; ++k) {
    const int64_t height = images.size(2) >> k, width = images.size(3) >> k;
    choices.push_back({.positions_a = draw_positions(n, o.patches, height, width),
                       .positions_b = draw_positions(n, o.patches, height, width),
                       .directions = draw_directions(o.directions, images.size(1) * kPatchArea)});
  }
  return choices;
}

// `level` is the number of halvings of the images; 0 is the full size.
void check_positions(const Tensor& positions, const Tensor& images, int64_t level) {
  if (!positions.defined() || positions.dim() != 3 || positions.size(0) != images.size(0) ||
      positions.size(1) < 1 || positions.size(2) != 2)
    throw ShapeError(kName, "expected positions [", images.size(0), ",patches,2] at level ", level, ", got ",
                     describe(positions));
  if (positions.dtype() != DType::kI64)
    throw DTypeError(kName, "expected positions of i64, got ", describe(positions));
  for (const int axis : {0, 1}) {
    const int64_t max = (images.size(2 + axis) >> level) - kPatchRadius - 1;
    const Tensor centers = select(positions, 2, axis);
    const auto low = amin(centers).item<int64_t>(), high = amax(centers).item<int64_t>();
    if (low < kPatchRadius || high > max)
      throw ValueError(kName, "expected positions of ", kPatchRadius, " to ", max, " at level ", level,
                       ", got ", low < kPatchRadius ? low : high);
  }
}

void check(const SlicedWassersteinChoices& c, const ImagePair& images, int64_t level) {
  check_positions(c.positions_a, images.a, level);
  check_positions(c.positions_b, images.b, level);
  if (c.positions_a.size(1) != c.positions_b.size(1))
    throw ShapeError(kName, "expected as many patches of a and b, got ", describe(c.positions_a), " and ",
                     describe(c.positions_b));
  const int64_t size = images.a.size(1) * kPatchArea;
  if (!c.directions.defined() || c.directions.dim() != 2 || c.directions.size(0) < 1 ||
      c.directions.size(1) != size)
    throw ShapeError(kName, "expected directions [any,", size, "], got ", describe(c.directions));
  check_floating(kName, "directions", c.directions);
}

// Filters each row by [1,4,6,4,1] * gain / 16, mirrored at the edges. The weights are powers of two and sums
// of them: sums of u8 stay exact for several levels.
Plane filtered_rows(const Plane& x, double gain) {
  constexpr int64_t kRadius = 2;
  Plane y{x.height, x.width};
  std::vector<double> padded(static_cast<size_t>(x.width + 2 * kRadius));
  double* p = padded.data() + kRadius;
  for (int64_t i = 0; i < x.height; ++i) {
    std::copy(x.row(i), x.row(i) + x.width, p);
    for (int64_t k = 1; k <= kRadius; ++k) p[-k] = p[k], p[x.width - 1 + k] = p[x.width - 1 - k];
    for (int64_t j = 0; j < x.width; ++j)
      y.row(i)[j] = (p[j - 2] + 4 * p[j - 1] + 6 * p[j] + 4 * p[j + 1] + p[j + 2]) * (gain / 16);
  }
  return y;
}

// The same filter along rows and columns.
Plane filtered(const Plane& x, double gain) {
  return transposed(filtered_rows(transposed(filtered_rows(x, gain)), gain));
}

// Filters, then keeps every second pixel of both dims.
Plane downsampled(const Plane& x) {
  const Plane smooth = filtered(x, 1);
  Plane y{x.height / 2, x.width / 2};
  for (int64_t i = 0; i < y.height; ++i)
    for (int64_t j = 0; j < y.width; ++j) y.row(i)[j] = smooth.row(2 * i)[2 * j];
  return y;
}

// Doubles both dims: zeros between the pixels, then 4 times the filter.
Plane upsampled(const Plane& x) {
  Plane wide{2 * x.height, 2 * x.width};
  for (int64_t i = 0; i < x.height; ++i)
    for (int64_t j = 0; j < x.width; ++j) wide.row(2 * i)[2 * j] = x.row(i)[j];
  return filtered(wide, 2);
}

// Level k is image k - upsampled(image k + 1), where image k + 1 is downsampled(image k). The last level is the
// last image.
Plane laplacian_level(Plane x, int64_t level, int64_t levels) {
  for (int64_t i = 0; i < level; ++i) x = downsampled(x);
  if (level + 1 == levels) return x;
  const Plane coarse = upsampled(downsampled(x));
  for (size_t i = 0; i < x.pixels.size(); ++i) x.pixels[i] -= coarse.pixels[i];
  return x;
}

void copy_patch(const Plane& from, int64_t y, int64_t x, float* to) {
  for (int64_t i = 0; i < kPatch; ++i) {
    const double* row = from.row(y - kPatchRadius + i) + x - kPatchRadius;
    std::copy(row, row + kPatch, to + i * kPatch);
  }
}

// Returns the patches of a level, f32[N patches,C,49].
Tensor patches_of(const Tensor& images, const Tensor& positions, int64_t level, int64_t levels) {
  const int64_t n = images.size(0), channels = images.size(1), patches = positions.size(1);
  Tensor all = empty({Checked(kName, n) * patches, channels, kPatchArea}, {.dtype = DType::kF32});
  const Tensor host = raw::contiguous(raw::to(positions, kCPU));
  const int64_t* position = host.data<int64_t>();
  float* to = all.mutable_data<float>();
  parallel_for(0, n * channels, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t image = i / channels, channel = i % channels;
      const Plane plane = laplacian_level(internal::plane_of(images, image, channel), level, levels);
      for (int64_t j = image * patches; j < (image + 1) * patches; ++j)
        copy_patch(plane, position[2 * j], position[2 * j + 1], to + (j * channels + channel) * kPatchArea);
    }
  });
  return all;
}

// Normalizes a channel of all patches to mean 0 and standard deviation 1.
void normalize_channel(float* patches, int64_t rows, int64_t stride) {
  const auto each = [&](auto f) {
    for (int64_t i = 0; i < rows; ++i)
      for (float *p = patches + i * stride, *end = p + kPatchArea; p < end; ++p) f(*p);
  };
  const double count = double(rows * kPatchArea);
  double sum = 0, squares = 0;
  each([&](float v) { sum += v; });
  const double mean = sum / count;
  each([&](float v) { squares += (v - mean) * (v - mean); });
  const double deviation = std::sqrt(squares / count);
  const double scale = deviation > 0 ? 1 / deviation : 0;
  each([&](float& v) { v = float((v - mean) * scale); });
}

// Normalizes [rows, C, 49] in place per channel, and returns it as [rows, 49 C].
Tensor normalized(Tensor patches) {
  const int64_t rows = patches.size(0), channels = patches.size(1);
  float* p = patches.mutable_data<float>();
  parallel_for(0, channels, 1, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) normalize_channel(p + c * kPatchArea, rows, channels * kPatchArea);
  });
  return flatten(patches, 1);
}

// Returns [directions, rows]: the projections of the patches [rows, 49 C] onto each direction, sorted.
Tensor sorted_projections(const Tensor& directions, const Tensor& patches) {
  Tensor x = raw::contiguous(matmul(directions, transpose(patches, 0, 1)));
  float* p = x.mutable_data<float>();
  const int64_t size = x.size(1);
  parallel_for(0, x.size(0), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) std::sort(p + i * size, p + (i + 1) * size);
  });
  return x;
}

// Returns the mean distance over all directions.
double distance(const Tensor& a, const Tensor& b, const Tensor& directions) {
  const autograd::NoAutocast no_autocast;
  constexpr int64_t kDirectionsPerBlock = 16;  // bounds the memory of projections by that of the patches
  const Tensor all = raw::to(raw::to(directions, kCPU), DType::kF32);
  double total = 0;
  for (int64_t at = 0; at < all.size(0); at += kDirectionsPerBlock) {
    const Tensor block = narrow(all, 0, at, std::min(kDirectionsPerBlock, all.size(0) - at));
    const Tensor difference = abs(sorted_projections(block, a) - sorted_projections(block, b));
    total += sum(mean(to(difference, DType::kF64), {1})).item<double>();
  }
  return total / double(all.size(0));
}

}  // namespace

SlicedWasserstein sliced_wasserstein(const Tensor& a, const Tensor& b,
                                     const SlicedWassersteinOptions& options) {
  const auto off = no_record();
  return sliced_wasserstein_of_choices(a, b, draw(checked(a, b).a, options));
}

SlicedWasserstein sliced_wasserstein_of_choices(const Tensor& a, const Tensor& b,
                                                const std::vector<SlicedWassersteinChoices>& choices) {
  const auto off = no_record();
  const ImagePair images = checked(a, b);
  const int64_t levels = levels_of(images.a);
  if (static_cast<int64_t>(choices.size()) != levels)
    throw ValueError(kName, "expected choices for ", levels, " levels, got ", choices.size());
  for (int64_t k = 0; k < levels; ++k) check(choices[k], images, k);
  SlicedWasserstein result;
  for (int64_t k = 0; k < levels; ++k) {
    const SlicedWassersteinChoices& c = choices[k];
    const auto patches = [&](const Tensor& x, const Tensor& positions) {
      return normalized(patches_of(x, positions, k, levels));
    };
    const Tensor of_a = patches(images.a, c.positions_a), of_b = patches(images.b, c.positions_b);
    result.levels.push_back(1000 * distance(of_a, of_b, c.directions));
  }
  result.mean = std::accumulate(result.levels.begin(), result.levels.end(), 0.0) / double(levels);
  return result;
}

}  // namespace gradus::metrics
