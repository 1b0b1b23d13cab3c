// Plane: a channel of an image in f64, for metrics of images.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::metrics::internal {

// Pixels [height, width], row-major, initially 0.
struct Plane {
  int64_t height, width;
  std::vector<double> pixels = std::vector<double>(static_cast<size_t>(height * width));

  double* row(int64_t y) { return pixels.data() + y * width; }
  const double* row(int64_t y) const { return pixels.data() + y * width; }
};

// Returns images as row-major u8 on the host.
// Shapes: [N,C,H,W], C, H, W >= 1.
// Errors: ValueError for undefined images; ShapeError; DTypeError unless u8.
Tensor checked_images(const char* metric, const char* name, const Tensor& images);
// Returns a channel of an image. `images` is a result of checked_images; the indices are not checked.
Plane plane_of(const Tensor& images, int64_t image, int64_t channel);
Plane transposed(const Plane& x);

}  // namespace gradus::metrics::internal
