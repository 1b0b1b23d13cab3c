// Differentiable distances, similarities and normalization of vectors; norms as in autograd/ops/reduce.h.
// Results have the inputs' promoted dtype; all but cdist compute 16-bit floats in f32.
// Errors of all: DeviceError for tensors on different devices.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

struct PairwiseDistanceOptions {
  double p = 2;       // exponent of the norm
  double eps = 1e-6;  // added to every difference, so that equal vectors have a gradient
  bool keepdim = false;
};
// Returns the p-norm of a - b + eps along the last dim.
// Shapes: a, b [...,D], broadcasting -> [...].
// Errors: ShapeError for scalars and for shapes that do not broadcast; DTypeError unless floating point.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, const PairwiseDistanceOptions& options = {});

struct CosineSimilarityOptions {
  int64_t dim = 1;
  double eps = 1e-8;  // lower bound of the norms in the divisor
};
// Returns the cosine of the angle between a and b: sum a b / (max(|a|, eps) max(|b|, eps)) along `dim`.
// Shapes: a, b broadcasting -> their shape without `dim`.
// Errors: ShapeError, IndexError; DTypeError unless floating point.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, const CosineSimilarityOptions& options = {});

struct NormalizeFuncOptions {
  double p = 2;  // exponent of the norm
  int64_t dim = 1;
  double eps = 1e-12;  // lower bound of the norm in the divisor
};
// Returns x / max(|x|_p, eps) along a dim.
// Errors: DTypeError unless floating point; IndexError.
Tensor normalize(const Tensor& x, const NormalizeFuncOptions& options = {});

// Returns the p-norms of the differences between every row of a and every row of b, p >= 0.
// Shapes: a[...,m,d], b[...,n,d], leading dims broadcasting -> [...,m,n].
// Errors: DTypeError unless floating point; ShapeError unless both have at least 2 dims and d in common;
// ValueError for negative p; DeviceError.
// Grad: as norm; 0 where two rows are equal.
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2);

}  // namespace gradus
