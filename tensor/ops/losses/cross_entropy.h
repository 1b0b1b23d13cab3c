// Raw cross-entropy between scores and class numbers, and its gradient. The differentiable form
// is in gradus/autograd/ops/losses/cross_entropy.h.
//
// Every sample has C scores x_c and a target class y. Its loss is
//   -sum_c a_c log p_c, where a_c = w_c ((1 - smoothing) [c = y] + smoothing / C)
// and p = softmax(x), or p = exp(x) where the scores are log-probabilities.
#pragma once

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// How the losses of the samples are combined. The mean is weighted by the class weights of the targets.
// kBatchMean is the sum divided by the size of the batch; only kl_div has it.
enum class Reduction { kMean, kSum, kNone, kBatchMean };

namespace raw {

struct CrossEntropySpec {
  Reduction reduction = Reduction::kMean;
  int64_t ignore_index = -100;  // samples with this target are left out
  double smoothing = 0;
  bool log_probs = false;  // x holds log-probabilities

  // Set by the op: x is seen as [outer, classes, inner].
  int64_t classes = 0, inner = 1;
};

struct CrossEntropyResult {
  Tensor loss;   // 0-dimensional, or shaped like the target
  Tensor stats;  // of each sample: its largest score and log(sum exp(x - largest)); undefined for log_probs
  Tensor total;  // 0-dimensional: the sum of the class weights of the counted targets
};

// Returns the loss. x[N,C,D...] or x[C] is floating, target[N,D...] or [] integral, weight[C]
// may be undefined.
// Errors: ShapeError, DTypeError, DeviceError, ValueError; IndexError for a target that is no class.
CrossEntropyResult cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                                 const CrossEntropySpec& spec);
// Returns the gradient of x for the gradient dy of the loss. `forward.total` may be undefined unless the
// reduction is a mean.
Tensor cross_entropy_grad(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& weight,
                          const CrossEntropyResult& forward, const CrossEntropySpec& spec);

// Kernels: x and dx dense, in one layout; target i64, row-major; weight row-major, of x's dtype.
// clang-format off
extern KernelSlot<void(const Tensor& loss, const Tensor& stats, const Tensor& total, const Tensor& x, const
    Tensor& target, const Tensor& weight, const CrossEntropySpec&)> cross_entropy_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target, const
    Tensor& weight, const Tensor& stats, const Tensor& total, const CrossEntropySpec&)>
    cross_entropy_grad_kernel;
// clang-format on

}  // namespace raw
}  // namespace gradus
