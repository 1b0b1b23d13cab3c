#include "gradus/nn/layers/flatten.h"

#include "gradus/autograd/ops/view.h"

namespace gradus::nn {

Tensor Flatten::forward(const Tensor& x) { return flatten(x, options().start, options().end); }
std::string Flatten::extra_repr() const { return concat("start=", options().start, ", end=", options().end); }

}  // namespace gradus::nn
