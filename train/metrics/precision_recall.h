// Precision and recall of the distribution of generated images, from their features.
//
// Not collective: each rank compares its own features, from any device; the work is done on the host.
#pragma once

#include <cstdint>

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

struct PrecisionRecallOptions {
  int64_t k = 3;  // the ball of a sample reaches to its k-th nearest neighbor in its own set
};

struct PrecisionRecall {
  double precision;  // fraction of generated samples in the ball of a real one
  double recall;     // fraction of real samples in the ball of a generated one
};

// Balls are closed. Takes O((N + M)^2 D) time.
// Shapes: real [N,D], generated [M,D].
// Errors: DTypeError unless floating point; ShapeError; ValueError for NaN, magnitudes above 1e40, k < 1,
// and k samples or fewer.
// Source: Kynkaanniemi et al., "Improved precision and recall metric for assessing generative models",
// NeurIPS 2019.
PrecisionRecall precision_recall(const Tensor& real, const Tensor& generated,
                                 const PrecisionRecallOptions& options = {});

}  // namespace gradus::metrics
