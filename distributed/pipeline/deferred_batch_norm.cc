// Implementation of DeferredBatchNorm.
#include "gradus/distributed/pipeline/deferred_batch_norm.h"

namespace gradus::dist::internal {

DeferredBatchNorm::DeferredBatchNorm(nn::Module& model) {
  model.apply([&](nn::Module& m) {
    if (auto* layer = dynamic_cast<nn::BatchNorm*>(&m)) layers_.push_back(layer);
  });
  for (nn::BatchNorm* layer : layers_) layer->defer_statistics(true);
}

DeferredBatchNorm::~DeferredBatchNorm() {
  for (nn::BatchNorm* layer : layers_) layer->defer_statistics(false);
}

void DeferredBatchNorm::apply() {
  for (nn::BatchNorm* layer : layers_) layer->apply_deferred_statistics();
}

}  // namespace gradus::dist::internal
