// The sliced Wasserstein distance between the patches of two sets of images, at each level of Laplacian
// pyramids.
//
//   const metrics::SlicedWasserstein d = metrics::sliced_wasserstein(real, generated);  // u8[N,3,64,64]
//   d.levels;  // of 64, 32 and 16 pixels
//   d.mean;
//
// Not collective: each rank compares its own images.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

struct SlicedWassersteinOptions {
  int64_t patches = 128;     // of each image, at each level
  int64_t directions = 512;  // at each level; the authors' 4 * 128
  uint64_t seed = 0;         // of the positions of patches and of the directions
};

// The random choices of one level.
struct SlicedWassersteinChoices {
  // Rows and columns of the centers of patches, at least 3 pixels from the edges.
  Tensor positions_a, positions_b;  // i64[N,patches,2]
  Tensor directions;                // [directions,49 C] of length 1; a patch is C x 7 x 7
};

struct SlicedWasserstein {
  std::vector<double> levels;  // times 1000, from the full size down
  double mean;                 // of the levels
};

// Returns the distances of patches of 7x7 pixels at each level of Laplacian pyramids, from the size of the
// images down to 16 pixels. Each channel of the patches of a set is normalized to mean 0 and standard
// deviation 1; a constant one becomes 0. The distance in a direction is mean |sort(projections a) -
// sort(projections b)|.
// Shapes: a, b u8[N,C,H,W] of one shape; H, W >= 16, and even down to the last level.
// Errors: DTypeError, ShapeError; ValueError without images, and for patches or directions outside [1,
// 65536].
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
SlicedWasserstein sliced_wasserstein(const Tensor& a, const Tensor& b,
                                     const SlicedWassersteinOptions& options = {});
// The same with the choices of each level.
// Errors: also ShapeError, DTypeError for choices that do not fit; ValueError for positions near the edge.
SlicedWasserstein sliced_wasserstein_of_choices(const Tensor& a, const Tensor& b,
                                                const std::vector<SlicedWassersteinChoices>& choices);

}  // namespace gradus::metrics
