// DeferredBatchNorm: updates running statistics once per step, from the joined rows of all its micro-batches,
// as GPipe's deferred batch norm.
#pragma once

#include <vector>

#include "gradus/nn/layers/batch_norm.h"

namespace gradus::dist::internal {

// Between construction and destruction the model's batch norms accumulate statistics of their batches instead
// of updating the running statistics.
class DeferredBatchNorm {
 public:
  explicit DeferredBatchNorm(nn::Module& model);
  ~DeferredBatchNorm();
  DeferredBatchNorm(const DeferredBatchNorm&) = delete;
  DeferredBatchNorm& operator=(const DeferredBatchNorm&) = delete;

  // Updates the running statistics. A step that fails does not call apply, so the statistics do not change.
  void apply();

 private:
  std::vector<nn::BatchNorm*> layers_;
};

}  // namespace gradus::dist::internal
