// StatisticsReduction: layers that look at a whole batch see those of several processes as one.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::nn {

// Joins the statistics of several batches, such as those of a job's ranks; distributed/
// implements it. Differentiable.
class StatisticsReduction {
 public:
  virtual ~StatisticsReduction() = default;
  virtual int size() const = 0;
  virtual int rank() const = 0;  // this process's place, in [0, size)
  // Returns every rank's x.
  // Shapes: x [k] -> [size,k].
  virtual Tensor all_gather(const Tensor& x) = 0;
};

}  // namespace gradus::nn
