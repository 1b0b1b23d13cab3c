// Dropout layers: each calls the op of the same name.
#include "gradus/nn/layers/dropout.h"

#include "gradus/autograd/ops/dropout.h"

namespace gradus::nn {

Tensor Dropout::forward(const Tensor& x) { return dropout(x, options().p, is_training()); }
Tensor Dropout::forward_temporary(Tensor&& x) { return dropout(std::move(x), options().p, is_training()); }

Tensor Dropout1d::forward(const Tensor& x) { return dropout1d(x, options().p, is_training()); }
Tensor Dropout2d::forward(const Tensor& x) { return dropout2d(x, options().p, is_training()); }
Tensor Dropout3d::forward(const Tensor& x) { return dropout3d(x, options().p, is_training()); }

Tensor AlphaDropout::forward(const Tensor& x) { return alpha_dropout(x, options().p, is_training()); }
Tensor FeatureAlphaDropout::forward(const Tensor& x) {
  return feature_alpha_dropout(x, options().p, is_training());
}

template class ModuleWith<DropoutOptions, Layer>;
}  // namespace gradus::nn
