// Parts of losses: the cast of a weight, and the reduction of the losses of all elements.
#pragma once

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/tensor/ops/losses/cross_entropy.h"

namespace gradus::autograd {

// Returns the options of a loss with their weight cast as an operand.
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
