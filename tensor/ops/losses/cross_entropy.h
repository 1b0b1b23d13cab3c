// Raw cross-entropy with class indices as targets (cross_entropy and nll_loss of PyTorch), and its gradient, in
// f32 or f64. On a GPU x and dx may also be of 16 bits, with f32 for all other floats. The differentiable
// form, which takes 16-bit floats on all devices, is in gradus/autograd/ops/losses/cross_entropy.h.
//
// A sample has C logits x_c and a target class y; w_c are class weights. The loss of a sample is
//   -sum_c a_c log p_c, where a_c = w_c ((1 - smoothing) [c = y] + smoothing / C)
// and p = softmax(x), or p = exp(x) if x are log-probabilities. The loss is 0 if the target is ignore_index.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// The reduction over samples. kMean of cross_entropy is the sum divided by the sum of w_y over the samples that
// are not ignored (NaN if all are ignored). kBatchMean is the sum divided by the batch size; only for kl_div.
enum class Reduction { kMean, kSum, kNone, kBatchMean };

namespace raw {

struct CrossEntropySpec {
  Reduction reduction = Reduction::kMean;
  int64_t ignore_index = -100;  // samples with this target are ignored
  double smoothing = 0;
  bool log_probs = false;  // x holds log-probabilities

  // Set by the ops below for the kernels, which see x as [outer, classes, inner]. Callers leave the defaults.
  int64_t classes = 0, inner = 1;
};

// All three have x's dtype, or f32 if x is of 16 bits.
struct CrossEntropyResult {
  Tensor loss;   // 0-dimensional, or of the target's shape
  Tensor stats;  // [samples,2]: max(x) and log(sum exp(x - max(x))); undefined for log_probs
  Tensor total;  // 0-dimensional: the sum of the class weights of the targets that are not ignored
};

// Returns the loss, with what the gradient needs.
// Shapes: x [N,C,D...] and target [N,D...], or x [C] and target []; weight [C] of the loss's dtype, or
// undefined (all 1).
// Errors: ShapeError; DTypeError unless x is f32 or f64, on a GPU also bf16 or f16, and target integral;
// DeviceError for tensors on different devices; ValueError for a smoothing outside [0, 1]; IndexError for a
// target outside [0, C) that is not ignore_index. On a GPU the IndexError is thrown when the host next waits
// for the stream.
CrossEntropyResult cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                                 const CrossEntropySpec& spec);
// Returns dx, given dy, the gradient of the loss, and the result of cross_entropy of the same arguments.
// forward.loss is not read; forward.total may be undefined unless the reduction is kMean.
Tensor cross_entropy_grad(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& weight,
                          const CrossEntropyResult& forward, const CrossEntropySpec& spec);

// Kernels: x and dx dense, in one layout; target i64 [outer, inner], row-major; weight row-major, of the
// loss's dtype; stats undefined for log_probs; loss and dy 0-dimensional, or [outer, inner] for
// Reduction::kNone.
// clang-format off
extern KernelSlot<void(const Tensor& loss, const Tensor& stats, const Tensor& total, const Tensor& x, const
    Tensor& target, const Tensor& weight, const CrossEntropySpec&)> cross_entropy_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target, const
    Tensor& weight, const Tensor& stats, const Tensor& total, const CrossEntropySpec&)>
    cross_entropy_grad_kernel;
// clang-format on

}  // namespace raw
}  // namespace gradus
