// Planes: single channels of images in f64, on which metrics of images compute.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::metrics::internal {

// A channel of an image, row by row.
struct Plane {
  int64_t height, width;
  std::vector<double> pixels = std::vector<double>(static_cast<size_t>(height * width));

  double* row(int64_t y) { return pixels.data() + y * width; }
  const double* row(int64_t y) const { return pixels.data() + y * width; }
};

// Returns images as row-major u8 on the host.
// Shapes: [N,C,H,W], C, H and W at least 1.
// Errors: ValueError for undefined images; ShapeError; DTypeError unless u8.
Tensor checked_images(const char* metric, const char* name, const Tensor& images);
// Returns a channel of what checked_images returned.
Plane plane_of(const Tensor& images, int64_t image, int64_t channel);
// Returns the plane turned about its diagonal, so that its columns are rows.
Plane transposed(const Plane& x);

}  // namespace gradus::metrics::internal
