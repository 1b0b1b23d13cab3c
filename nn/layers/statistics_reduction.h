// StatisticsReduction: the collective with which layers combine batch statistics of several ranks.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::nn {

// Interface of a differentiable all-gather over the ranks of a job. Implemented in distributed/.
class StatisticsReduction {
 public:
  virtual ~StatisticsReduction() = default;
  virtual int size() const = 0;
  virtual int rank() const = 0;  // this process's rank, in [0, size)
  // Returns the x of every rank, in order of rank.
  // Shapes: x [k] -> [size,k].
  virtual Tensor all_gather(const Tensor& x) = 0;
};

}  // namespace gradus::nn
