// The sliced Wasserstein distance (SWD) between the patches of two sets of images, at each level of their
// Laplacian pyramids: a measure of how well a generator matches real images at each scale, near 0 for sets of
// equal distribution.
//
//   const metrics::SlicedWasserstein d = metrics::sliced_wasserstein(real, generated);  // u8[N,3,64,64]
//   d.levels;  // three distances: of the levels of 64, 32 and 16 pixels
//   d.mean;    // their mean
//
// Tensors may be on any device; all work is done on the host. Not collective: each rank compares its own images.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

struct SlicedWassersteinOptions {
  int64_t patches = 128;     // number of patches of each image at each level
  int64_t directions = 512;  // number of random directions at each level; the paper's code takes 4 times 128
  uint64_t seed = 0;         // seed of the random positions of patches and of the random directions
};

// The random choices of one level. Positions are of the level's pixels, for the images a and b.
struct SlicedWassersteinChoices {
  // i64[N,patches,2]: row and column of the center of each patch, at least 3 pixels from the edges of the level.
  Tensor positions_a, positions_b;
  Tensor directions;  // floating [directions,49 C]: unit vectors in the space of patches [C,7,7]
};

struct SlicedWasserstein {
  std::vector<double> levels;  // 1000 times the distance at each level, from the full size down
  double mean;                 // mean of `levels`
};

// Returns the distances of patches of 7x7 pixels at each level of Laplacian pyramids, from the size of the
// images down to the last one whose shorter side has at least 16 pixels. Pyramids halve and double images with the
// filter [1,4,6,4,1] / 16. At each level, each channel of all patches of a set is normalized to mean 0 and
// standard deviation 1; a constant channel becomes 0. The distance of a level is the mean over all directions of
// mean |sort(projections a) - sort(projections b)|.
// Shapes: a, b u8[N,C,H,W] of one shape; H, W >= 16, and even down to the last level.
// Errors: DTypeError, ShapeError; ValueError without images, and for patches or directions outside [1,
// 65536].
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
SlicedWasserstein sliced_wasserstein(const Tensor& a, const Tensor& b,
                                     const SlicedWassersteinOptions& options = {});
// The same with given positions and directions, one entry of `choices` per level from the full size down, in place
// of random ones.
// Errors: also ShapeError, DTypeError for tensors of `choices` that do not fit; ValueError for another number of
// levels, and for positions less than 3 pixels from an edge.
SlicedWasserstein sliced_wasserstein_of_choices(const Tensor& a, const Tensor& b,
                                                const std::vector<SlicedWassersteinChoices>& choices);

}  // namespace gradus::metrics
