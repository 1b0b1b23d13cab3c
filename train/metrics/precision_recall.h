// Precision and recall of generated images by their features: whether they lie where real ones do, and
// whether they lie wherever real ones do.
//
// The result is that of the features given, on whichever rank: it is not collective.
#pragma once

#include <cstdint>

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

struct PrecisionRecallOptions {
  int64_t k = 3;  // a sample's ball reaches to its k-th nearest neighbor
};

struct PrecisionRecall {
  double precision;  // share of generated samples that lie in the ball of a real one
  double recall;     // share of real samples that lie in the ball of a generated one
};

// A sample's ball is that around it in its own set, its edge included. The time grows with the product of the
// numbers of samples.
// Shapes: real [N,D], generated [M,D].
// Errors: DTypeError unless floating point; ShapeError; ValueError for NaN, infinities, numbers beyond 1e40,
// k < 1, k samples or fewer.
// Source: Kynkaanniemi et al., "Improved precision and recall metric for assessing generative models",
// NeurIPS 2019.
PrecisionRecall precision_recall(const Tensor& real, const Tensor& generated,
                                 const PrecisionRecallOptions& options = {});

}  // namespace gradus::metrics
