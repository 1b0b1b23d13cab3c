// DeferredBatchNorm: the micro-batches of a step count as one batch in the running statistics.
#pragma once

#include <vector>

#include "gradus/nn/layers/batch_norm.h"

namespace gradus::dist::internal {

// While it lives, the model's batch norms collect their batches' statistics.
class DeferredBatchNorm {
 public:
  explicit DeferredBatchNorm(nn::Module& model);
  ~DeferredBatchNorm();
  DeferredBatchNorm(const DeferredBatchNorm&) = delete;
  DeferredBatchNorm& operator=(const DeferredBatchNorm&) = delete;

  // Updates the running statistics. Without it, a step that fails leaves them as they were.
  void apply();

 private:
  std::vector<nn::BatchNorm*> layers_;
};

}  // namespace gradus::dist::internal
