// Checks of features for metrics. Features are one vector per sample, for example from an Inception network.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::metrics::internal {

// Returns features as row-major f64 on the host. Nothing is recorded.
// Shapes: [N,D] -> [N,D], D at least 1.
// Errors: ShapeError, DTypeError unless floating point; ValueError for undefined features, NaN, and
// magnitudes above 1e40, whose powers would overflow f64.
Tensor checked_features(const char* metric, const char* name, const Tensor& features);

// Checks that the numbers of a row-major f64 tensor on the host are finite, and at most `largest` in magnitude.
// Errors: ValueError.
void check_magnitude(const char* metric, const char* name, const Tensor& x, double largest);

struct FeaturePair {
  Tensor a, b;
};
// Returns two sets of features as the first function does one. Errors: also ShapeError unless D is the same.
FeaturePair checked_features(const char* metric, const Tensor& a, const Tensor& b);

}  // namespace gradus::metrics::internal
