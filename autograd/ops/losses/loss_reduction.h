// Helpers of the loss ops: the autocast of the weight option, and the reduction of element-wise losses.
#pragma once

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/tensor/ops/losses/cross_entropy.h"

namespace gradus::autograd {

// Returns `options` with options.weight, if defined, cast as the op's operands are.
template <class Options> Options with_cast_weight(const Casting& cast, Options options) {
  options.weight = cast(options.weight);
  return options;
}

// Returns the mean or the sum of the losses, or the losses themselves for kNone.
// Errors: ValueError, named `op`, for kBatchMean.
inline Tensor reduce_losses(const char* op, const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::kMean:
      return mean(losses);
    case Reduction::kSum:
      return sum(losses);
    case Reduction::kNone:
      return losses;
    case Reduction::kBatchMean:
      break;
  }
  throw ValueError(op, "takes no reduction kBatchMean; kl_div does");
}

}  // namespace gradus::autograd
