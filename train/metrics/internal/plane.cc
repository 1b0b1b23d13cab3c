// Channels of u8 images as f64 planes, and their transposition. Callers pass valid indices.
#include "gradus/train/metrics/internal/plane.h"

#include <algorithm>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::metrics::internal {

Tensor checked_images(const char* metric, const char* name, const Tensor& images) {
  if (!images.defined()) throw ValueError(metric, name, " is undefined");
  if (images.dim() != 4 || images.size(1) < 1 || images.size(2) < 1 || images.size(3) < 1)
    throw ShapeError(metric, "expected ", name, " [N,C,H,W]: ", name, ' ', describe(images));
  if (images.dtype() != DType::kU8)
    throw DTypeError(metric, "expected ", name, " of u8, 0 to 255: ", name, ' ', describe(images));
  return raw::contiguous(raw::to(images, kCPU));
}

Plane plane_of(const Tensor& images, int64_t image, int64_t channel) {
  Plane plane{images.size(2), images.size(3)};
  const int64_t size = plane.height * plane.width;
  const uint8_t* from = images.data<uint8_t>() + (image * images.size(1) + channel) * size;
  std::copy(from, from + size, plane.pixels.begin());
  return plane;
}

Plane transposed(const Plane& x) {
  Plane y{x.width, x.height};
  for (int64_t i = 0; i < x.height; ++i)
    for (int64_t j = 0; j < x.width; ++j) y.row(j)[i] = x.row(i)[j];
  return y;
}

}  // namespace gradus::metrics::internal
