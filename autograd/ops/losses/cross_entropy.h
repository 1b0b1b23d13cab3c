// Differentiable cross-entropy and negative log-likelihood for classification, as in torch.nn.functional. Results
// have x's dtype; 16-bit floats are computed in f32. Under autocast, 16-bit x are cast to f32. Reductions: kMean,
// kSum, kNone.
#pragma once

#include "gradus/tensor/ops/losses/cross_entropy.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

struct CrossEntropyOptions {
  Reduction reduction = Reduction::kMean;
  Tensor weight = {};           // [C], of x's dtype, a constant: weight of each class; undefined: 1
  int64_t ignore_index = -100;  // samples with this class index as target have loss 0
  double label_smoothing = 0;   // s: the target distribution becomes (1 - s) target + s / C
};

// Returns the cross-entropy of logits x. The loss of a sample is
//   -sum_c a_c log softmax(x)_c,  a_c = weight_c ((1 - s) p_c + s / C),
// where s is label_smoothing. A target of integers has class indices: p is one-hot. kMean divides the sum of the
// losses by the sum of weight[target] over the samples that are not ignored; the result is NaN if all are ignored.
// A floating-point target of x's shape has the class probabilities p. kMean then divides by the number of samples,
// and the loss is differentiable in the target too. The weight is a constant.
// Shapes: x [N,C,D...], target [N,D...] of indices or [N,C,D...] of probabilities -> [] or, for kNone, [N,D...];
//   without the batch, x [C] and target [] or [C] -> [].
// Errors: ShapeError, DTypeError and DeviceError for arguments that do not match x; ValueError for a
// label_smoothing outside [0, 1] and for kBatchMean; IndexError naming a target outside [0, C), on GPUs once the
// host synchronizes; StateError, for class indices, if the weight is tracked by a recording (requires grad).
// Grad: dx_c = dy r (softmax(x)_c sum_k a_k - a_c); r is 1, or for kMean the reciprocal of the divisor. dx is 0
// for ignored samples.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options = {});

// As the members of CrossEntropyOptions.
struct NllLossOptions {
  Reduction reduction = Reduction::kMean;
  Tensor weight = {};
  int64_t ignore_index = -100;
};

// Returns the negative log-likelihood of log-probabilities x (from log_softmax). The loss of a sample is
// -weight[target] x[target]; reductions are those of cross_entropy for class indices.
// Shapes and errors: as cross_entropy for class indices.
// Grad: dx_c = -dy r weight_c if c is the target, else 0; r as for cross_entropy. dx is 0 for ignored samples.
Tensor nll_loss(const Tensor& x, const Tensor& target, const NllLossOptions& options = {});

// Backward op: returns the gradient with respect to x of cross_entropy with class indices, or of nll_loss if
// spec.log_probs is set. x, target, weight and spec are the arguments of raw::cross_entropy in the forward, and
// `forward` is its result; forward.loss is not used. dy has the loss's shape. Differentiable in dy and x.
Tensor cross_entropy_grad(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& weight,
                          const raw::CrossEntropyResult& forward, const raw::CrossEntropySpec& spec);

}  // namespace gradus
