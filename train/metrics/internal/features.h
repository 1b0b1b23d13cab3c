// What metrics of features check: rows of numbers that a network made of images.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::metrics::internal {

// Returns features as row-major f64 on the host. Nothing is recorded.
// Shapes: [N,D] -> [N,D], D at least 1.
// Errors: ShapeError, DTypeError unless floating point; ValueError for undefined features, NaN, infinities,
// and numbers beyond 1e40, whose powers f64 could not hold.
Tensor checked_features(const char* metric, const char* name, const Tensor& features);

// The same for two sets of features that are compared.
// Errors: ShapeError also unless both have the same D.
struct FeaturePair {
  Tensor a, b;
};
FeaturePair checked_features(const char* metric, const Tensor& a, const Tensor& b);

}  // namespace gradus::metrics::internal
