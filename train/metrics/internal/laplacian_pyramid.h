// Laplacian pyramids: level k is image k - upsampled(image k + 1), where image k + 1 is downsampled from
// image k; the last level is the last image.
#pragma once

#include "gradus/train/metrics/internal/plane.h"

namespace gradus::metrics::internal {

// Padding, and upsampling before the filter.
enum class PyramidKind {
  kPggan,  // reflection; zeros between the pixels, and 4 times the filter
  kMmgen,  // zeros; nearest
};

// Return a plane of half and of twice the size, filtered by [1,4,6,4,1] / 16 along both axes.
Plane half(const Plane& x, PyramidKind kind);
Plane twice(const Plane& x, PyramidKind kind);

// Returns a level of the pyramid with `levels` levels; level 0 has the size of x.
Plane laplacian_level(Plane x, int64_t level, int64_t levels, PyramidKind kind);

}  // namespace gradus::metrics::internal
