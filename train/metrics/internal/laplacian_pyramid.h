// Laplacian pyramids: an image as what each size adds to the next smaller one, and the smallest itself.
#pragma once

#include "gradus/train/metrics/internal/plane.h"

namespace gradus::metrics::internal {

// How pixels beyond the edge are filled in, and how a plane becomes twice as large.
enum class PyramidKind {
  kPggan,  // mirrored without repeating the edge; zeros between the pixels, then the filter times 4
  kMmgen,  // zeros; each pixel four times, then the filter
};

// Return a plane of half and of twice the size, filtered with [1,4,6,4,1] / 16 along both axes.
Plane half(const Plane& x, PyramidKind kind);
Plane twice(const Plane& x, PyramidKind kind);

// Returns a level of the pyramid of `levels` levels, of which the first has the size of `x`.
Plane laplacian_level(Plane x, int64_t level, int64_t levels, PyramidKind kind);

}  // namespace gradus::metrics::internal
