// Raw cross-entropy between scores and class numbers, and its gradient. The differentiable form
// is in gradus/autograd/ops/losses/cross_entropy.h.
//
// Every sample has C scores x_c and a target y. With a_c = w_c ((1 - smoothing) [c = y] + smoothing / C),
// where w_c in the first term counts as w_y, its loss is -sum_c a_c log p_c: p = softmax(x), or p = exp(x)
// for scores that are logarithms already.
#pragma once

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// What a loss does with its samples. The mean is weighted by the targets' class weights. kBatchMean, the sum
// divided by the size of the batch, is kl_div's alone.
enum class Reduction { kMean, kSum, kNone, kBatchMean };

namespace raw {

struct CrossEntropySpec {
  Reduction reduction = Reduction::kMean;
  int64_t ignore_index = -100;  // samples with this target count for nothing
  double smoothing = 0;
  bool log_probs = false;  // x holds log-probabilities

  // Filled by the op: x is seen as [outer, classes, inner].
  int64_t classes = 0, inner = 1;
};

struct CrossEntropyResult {
  Tensor loss;   // 0-dimensional, or shaped like the target
  Tensor stats;  // per sample its largest score and log(sum exp(x - largest)); undefined for log_probs
  Tensor total;  // 0-dimensional: the sum of the counted targets' weights
};

// x[N,C,D...] or x[C] floating, target[N,D...] or [] integral, weight[C] or undefined.
// Errors: ShapeError, DTypeError, DeviceError, ValueError; IndexError for a target that is no class.
CrossEntropyResult cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                                 const CrossEntropySpec& spec);
// The gradient of x when that of the loss is dy. `total` may be undefined unless the reduction is a mean.
Tensor cross_entropy_grad(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& weight,
                          const CrossEntropyResult& forward, const CrossEntropySpec& spec);

// Kernels: x and dx of one layout, dense; target i64 row-major; weight row-major of x's dtype.
// clang-format off
extern KernelSlot<void(const Tensor& loss, const Tensor& stats, const Tensor& total, const Tensor& x, const
    Tensor& target, const Tensor& weight, const CrossEntropySpec&)> cross_entropy_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target, const
    Tensor& weight, const Tensor& stats, const Tensor& total, const CrossEntropySpec&)>
    cross_entropy_grad_kernel;
// clang-format on

}  // namespace raw
}  // namespace gradus
