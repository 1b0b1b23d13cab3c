#include "gradus/nn/dropout.h"

#include "gradus/autograd/ops/dropout.h"

namespace gradus::nn {

Tensor Dropout::forward(const Tensor& x) { return dropout(x, options().p, is_training()); }
Tensor Dropout::forward_temporary(Tensor&& x) { return dropout(std::move(x), options().p, is_training()); }
std::string Dropout::extra_repr() const { return concat("p=", options().p); }

}  // namespace gradus::nn
