// The Dropout layer: in training, sets each element to 0 with probability p and divides the others by 1 - p;
// in evaluation, returns x. Both functions call the op gradus::dropout. forward_temporary passes the
// ownership of x, so that the op writes the result into x's buffer if nothing else refers to it. The other
// dropout layers are in the header.
#include "gradus/nn/layers/dropout.h"

namespace gradus::nn {

Tensor Dropout::forward(const Tensor& x) { return dropout(x, options().p, is_training()); }
Tensor Dropout::forward_temporary(Tensor&& x) { return dropout(std::move(x), options().p, is_training()); }

template class ModuleWith<DropoutOptions, Layer>;
}  // namespace gradus::nn
