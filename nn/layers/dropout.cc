// Dropout layers: Dropout calls the op of the same name.
#include "gradus/nn/layers/dropout.h"

namespace gradus::nn {

Tensor Dropout::forward(const Tensor& x) { return dropout(x, options().p, is_training()); }
Tensor Dropout::forward_temporary(Tensor&& x) { return dropout(std::move(x), options().p, is_training()); }

template class ModuleWith<DropoutOptions, Layer>;
}  // namespace gradus::nn
