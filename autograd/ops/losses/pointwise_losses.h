// Element-wise losses, differentiable in x and target, as in torch.nn.functional. x and target have one
// shape; dtypes are promoted. The result is [] or, for Reduction::kNone, has that shape. The mean of no
// elements is NaN.
// Errors of all: ShapeError unless the shapes are equal; DTypeError unless both are floating; DeviceError;
// ValueError for Reduction::kBatchMean, except in kl_div.
#pragma once

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/ops/losses/cross_entropy.h"  // Reduction
#include "gradus/tensor/tensor.h"

namespace gradus {

struct MseLossOptions {
  Reduction reduction = Reduction::kMean;
};
// loss = (x - target)^2.
// Grad: to x, 2 (x - target) dy; to target, -dx.
Tensor mse_loss(const Tensor& x, const Tensor& target, const MseLossOptions& options = {});
// The same with a number as the target of all elements.
Tensor mse_loss_to(const Tensor& x, Number target, const MseLossOptions& options = {});

struct L1LossOptions {
  Reduction reduction = Reduction::kMean;
};
// loss = |x - target|.
// Grad: to x, sign(x - target) dy; to target, -dx.
Tensor l1_loss(const Tensor& x, const Tensor& target, const L1LossOptions& options = {});

struct SmoothL1LossOptions {
  Reduction reduction = Reduction::kMean;
  double beta = 1;  // 0 gives l1_loss
};
// loss = (x - target)^2 / (2 beta) where |x - target| < beta, else |x - target| - beta / 2.
// Errors: ValueError for beta < 0.
// Grad: to x, clamp((x - target) / beta, -1, 1) dy; to target, -dx.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, const SmoothL1LossOptions& options = {});

struct HuberLossOptions {
  Reduction reduction = Reduction::kMean;
  double delta = 1;
};
// loss = (x - target)^2 / 2 where |x - target| <= delta, else delta (|x - target| - delta / 2).
// Errors: ValueError unless delta > 0.
// Grad: to x, clamp(x - target, -delta, delta) dy; to target, -dx.
Tensor huber_loss(const Tensor& x, const Tensor& target, const HuberLossOptions& options = {});

struct BinaryCrossEntropyOptions {
  Reduction reduction = Reduction::kMean;
  Tensor weight = {};  // multiplies the losses; broadcasts to x's shape
};
// loss = -(target log x + (1 - target) log(1 - x)), with logarithms below -100 replaced by -100.
// Errors: also ValueError for an element of x or target that is NaN or outside of [0, 1] (on a CUDA device
// thrown by the next call that waits for the device); ShapeError for a weight that does not broadcast to x.
// Grad: (x - target) / max(x (1 - x), 1e-12) dy.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target,
                            const BinaryCrossEntropyOptions& options = {});

struct BinaryCrossEntropyWithLogitsOptions {
  Reduction reduction = Reduction::kMean;
  Tensor weight = {};      // multiplies the losses; broadcasts to x's shape
  Tensor pos_weight = {};  // multiplies the term -target log sigmoid(x); broadcasts to x's shape
};
// Binary cross-entropy of sigmoid(x), without overflow: loss = max(x, 0) - x target + log(1 + e^-|x|).
// Errors: also ShapeError for a weight or pos_weight that does not broadcast to x.
// Grad: (sigmoid(x) - target) dy.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        const BinaryCrossEntropyWithLogitsOptions& options = {});
// The same with a number as the target of all elements, such as the real or fake label of a GAN.
Tensor binary_cross_entropy_with_logits_to(const Tensor& x, Number target,
                                           const BinaryCrossEntropyWithLogitsOptions& options = {});

struct SoftMarginLossOptions {
  Reduction reduction = Reduction::kMean;
};
// loss = log(1 + e^(-target x)), without overflow; targets are 1 and -1.
// Grad: -target sigmoid(-target x) dy.
Tensor soft_margin_loss(const Tensor& x, const Tensor& target, const SoftMarginLossOptions& options = {});

struct KlDivOptions {
  // kBatchMean divides the sum by x.size(0), which gives the divergence.
  Reduction reduction = Reduction::kMean;
  bool log_target = false;  // target has log-probabilities instead of probabilities
};
// Terms of the Kullback-Leibler divergence of target from e^x: loss = target (log target - x), and 0 where
// target <= 0. With log_target, loss = e^target (target - x).
// Errors: also ShapeError for kBatchMean of a scalar.
// Grad: to x, -target dy.
Tensor kl_div(const Tensor& x, const Tensor& target, const KlDivOptions& options = {});

struct PoissonNllLossOptions {
  Reduction reduction = Reduction::kMean;
  bool log_input = true;  // x is the logarithm of the rate; false: the rate
  bool full = false;      // adds Stirling's approximation of log(target!) where target > 1
  double eps = 1e-8;      // added to the rate before its logarithm is taken
};
// Negative log-likelihood of a Poisson distribution: loss = e^x - target x; without log_input,
// loss = x - target log(x + eps).
// Errors: also ValueError for eps <= 0.
// Grad: (e^x - target) dy, or (1 - target / (x + eps)) dy.
Tensor poisson_nll_loss(const Tensor& x, const Tensor& target, const PoissonNllLossOptions& options = {});

struct GaussianNllLossOptions {
  Reduction reduction = Reduction::kMean;
  bool full = false;  // adds log(2 pi) / 2
  double eps = 1e-6;  // smaller variances are replaced by eps; they get the gradient at eps
};
// Negative log-likelihood of a normal distribution: loss = (log var + (x - target)^2 / var) / 2.
// Shapes: var as x, or with a last dim of size 1 or without it.
// Errors: also ShapeError for another var; ValueError unless eps > 0.
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& var,
                         const GaussianNllLossOptions& options = {});

}  // namespace gradus
