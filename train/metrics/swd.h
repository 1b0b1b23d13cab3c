// The sliced Wasserstein distance between two sets of images: how far their patches differ at each size of
// detail. No network is needed.
//
//   const metrics::SlicedWasserstein d = metrics::sliced_wasserstein(real, generated);  // u8[N,3,64,64]
//   d.levels;  // of 64, 32 and 16 pixels
//   d.mean;
//
// The result is that of the images given, on whichever rank: it is not collective.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

struct SlicedWassersteinOptions {
  int64_t patches = 128;     // of each image, at each level
  int64_t directions = 512;  // at each level; the authors' 4 times 128
  uint64_t seed = 0;         // of the patches' places and of the directions
  // As mmgeneration computes it: at most 4 levels of images in [-1,1], zeros beyond their edges, pixels
  // repeated where they grow, standard deviations with n - 1.
  bool mmgen = false;
};

// What is drawn at random for one level.
struct SlicedWassersteinChoices {
  // The middles of patches: rows and columns, 3 pixels or more from the edges.
  Tensor places_a, places_b;  // i64[N,patches,2]
  Tensor directions;          // [directions,49 C] of length 1; a patch is C x 7 x 7
};

struct SlicedWasserstein {
  std::vector<double> levels;  // each times 1000; the first is that of the full size
  double mean;                 // of the levels
};

// Returns the distances of patches of 7 x 7 pixels at each level of Laplacian pyramids, from the images' size
// down to 16 pixels. Each channel of a set's patches is brought to mean 0 and standard deviation 1; one that
// is constant becomes 0. Along a direction, the distance is the mean difference of the sorted projections.
// Shapes: a, b u8[N,C,H,W] alike; H, W at least 16, and even down to the last level.
// Errors: DTypeError, ShapeError; ValueError unless there are images, 1 to 65536 patches and directions.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
SlicedWasserstein sliced_wasserstein(const Tensor& a, const Tensor& b,
                                     const SlicedWassersteinOptions& options = {});
// The same with given choices for each level. Of the options only mmgen counts.
// Errors: also ShapeError, DTypeError for choices that do not fit; ValueError for places near the edge.
SlicedWasserstein sliced_wasserstein_of_choices(const Tensor& a, const Tensor& b,
                                                const std::vector<SlicedWassersteinChoices>& choices,
                                                const SlicedWassersteinOptions& options = {});

}  // namespace gradus::metrics
