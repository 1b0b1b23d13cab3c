// Cross-entropy losses for classification. 16-bit floats are computed in f32.
#pragma once

#include "gradus/tensor/ops/losses/cross_entropy.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

struct CrossEntropyOptions {
  Reduction reduction = Reduction::kMean;
  Tensor weight = {};           // [C], of x's dtype, a constant: weight of each class; undefined: 1
  int64_t ignore_index = -100;  // samples with this target are ignored
  double label_smoothing = 0;   // s: the target becomes (1 - s) target + s / C
};

// Cross-entropy of softmax(x) relative to class indices: -weight[target] log softmax(x)[target]. kMean divides
// the sum by the sum of the weights of the targets that are not ignored. A floating-point target of x's shape
// has class probabilities: -sum_c target_c weight_c log softmax(x)_c; kMean then divides by the number of
// samples.
// Shapes: x[N,C,D...], target integral [N,D...] (or x[C], target []) -> [] or, for kNone, [N,D...].
// Errors: ShapeError, DTypeError and DeviceError for arguments that do not fit x; ValueError for a
// label_smoothing outside of [0, 1] and for kBatchMean; IndexError naming a target that is no class.
// Grad: softmax(x) - onehot(target), times dy, the weight and the factor of the reduction.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options = {});

struct NllLossOptions {
  Reduction reduction = Reduction::kMean;
  Tensor weight = {};
  int64_t ignore_index = -100;
};

// Negative log-likelihood: -weight[target] x[target] for log-probabilities x (from log_softmax).
// Shapes: as cross_entropy for class indices.
// Errors: as cross_entropy for class indices.
// Grad: -onehot(target), times dy, the weight and the factor of the reduction.
Tensor nll_loss(const Tensor& x, const Tensor& target, const NllLossOptions& options = {});

// Returns the gradient of cross_entropy (of nll_loss with spec.log_probs) with respect to x.
// Differentiable in dy and x.
Tensor cross_entropy_grad(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& weight,
                          const raw::CrossEntropyResult& forward, const raw::CrossEntropySpec& spec);

}  // namespace gradus
