// Losses of scores for classes. 16-bit floats are computed in f32.
#pragma once

#include "gradus/tensor/ops/losses/cross_entropy.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

struct CrossEntropyOptions {
  Reduction reduction = Reduction::kMean;
  Tensor weight = {};           // [C], of x's dtype, a constant: how much each class counts; none: 1 each
  int64_t ignore_index = -100;  // samples with this target count for nothing
  double label_smoothing = 0;   // this share of the target is spread evenly over all classes
};

// Computes the cross-entropy of softmax(x) relative to the class numbers `target`: -log
// softmax(x)[target], weighted. kMean divides by the sum of the counted targets' weights. A floating-point
// target of x's shape is taken as probabilities: -sum_c target_c weight_c log softmax(x)_c; kMean then
// divides by the number of samples.
// Shapes: x[N,C,D...], target integral [N,D...] (or x[C], target []) -> [] or, for kNone, [N,D...].
// Errors: ShapeError, DTypeError and DeviceError for what does not fit x; ValueError for a label_smoothing
// outside of [0, 1] and for kBatchMean; IndexError naming a target that is no class.
// Grad: softmax(x) - onehot(target), scaled.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options = {});

struct NllLossOptions {
  Reduction reduction = Reduction::kMean;
  Tensor weight = {};
  int64_t ignore_index = -100;
};

// Computes -x[target], weighted, where x holds log-probabilities (of log_softmax).
// Shapes,
// Errors: as cross_entropy's for class numbers.
// Grad: -onehot(target), scaled.
Tensor nll_loss(const Tensor& x, const Tensor& target, const NllLossOptions& options = {});

// The gradient of cross_entropy (of nll_loss with spec.log_probs) to x, as an op: differentiable in dy and x.
Tensor cross_entropy_grad(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& weight,
                          const raw::CrossEntropyResult& forward, const raw::CrossEntropySpec& spec);

}  // namespace gradus
