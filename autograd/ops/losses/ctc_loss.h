// The connectionist temporal classification loss, as torch.nn.functional.ctc_loss.
#pragma once

#include "gradus/tensor/ops/losses/cross_entropy.h"  // Reduction
#include "gradus/tensor/tensor.h"

namespace gradus {

struct CtcLossOptions {
  int64_t blank = 0;  // the class of no label
  Reduction reduction = Reduction::kMean;
  // An infinite loss, of a target that is longer than its input, and its gradient become 0.
  bool zero_infinity = false;
};

// Returns -log of the probability of the targets: the sum over all sequences of classes, one per frame, that give the
// target when repeated classes are merged and blanks are removed. kMean divides the loss of each sample by the length
// of its target (at least 1) before the mean over the samples. Waits for the device, which computes `targets` and the
// lengths. 16-bit floats are computed in f32.
// Shapes: log_probs [T,N,C] (results of log_softmax), targets of integers [N,S], or [sum of target_lengths]: the
//   targets one after another; input_lengths and target_lengths of integers [N] -> [] or, for kNone, [N]. Without a
//   batch, log_probs [T,C], targets [S], both lengths [] -> [].
// Errors: ShapeError, DTypeError for arguments that do not match; IndexError for a target outside of [0, C);
// ValueError for a blank outside of [0, C), a length outside of [0, T] or [0, S], lengths whose sum is not the number
// of concatenated targets, and for kBatchMean; DeviceError for a target on the meta device.
// Grad: dy (exp(log_probs) - p) with the posterior probability p[t,n,c] of class c in frame t, which is the gradient
// with respect to scores whose log_softmax are log_probs, as in PyTorch; 0 for frames after the input's end, NaN for an
// infinite loss. There is no second derivative: StateError.
// Source: Graves et al., "Connectionist temporal classification", ICML 2006.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CtcLossOptions& options = {});

}  // namespace gradus
