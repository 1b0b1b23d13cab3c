// Raw cross-entropy with class indices as targets (cross_entropy and nll_loss of PyTorch), and its gradient. The
// differentiable form is in gradus/autograd/ops/losses/cross_entropy.h.
//
// A sample has C logits x_c and a target class y. Its loss is
//   -sum_c a_c log p_c, where a_c = w_c ((1 - smoothing) [c = y] + smoothing / C)
// and p = softmax(x), or p = exp(x) if x are log-probabilities.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// The reduction over samples. The mean of cross_entropy is weighted by the class weights of the targets.
// kBatchMean is the sum divided by the batch size; only for kl_div.
enum class Reduction { kMean, kSum, kNone, kBatchMean };

namespace raw {

struct CrossEntropySpec {
  Reduction reduction = Reduction::kMean;
  int64_t ignore_index = -100;  // samples with this target are ignored
  double smoothing = 0;
  bool log_probs = false;  // x holds log-probabilities

  // Set by the op: x is seen as [outer, classes, inner].
  int64_t classes = 0, inner = 1;
};

struct CrossEntropyResult {
  Tensor loss;   // 0-dimensional, or of the target's shape
  Tensor stats;  // [samples,2]: max(x) and log(sum exp(x - max(x))); undefined for log_probs
  Tensor total;  // 0-dimensional: the sum of the class weights of the targets that are not ignored
};

// Returns the loss. x[N,C,D...] or x[C] is floating, target[N,D...] or [] integral, weight[C]
// may be undefined.
// Errors: ShapeError, DTypeError, DeviceError, ValueError; IndexError for a target outside [0, C).
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
