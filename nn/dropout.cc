#include "gradus/nn/dropout.h"

#include "gradus/autograd/ops/random.h"

namespace gradus::nn {

Tensor Dropout::forward(const Tensor& x) { return is_training() ? dropout(x, options().p) : x; }
std::string Dropout::extra_repr() const { return concat("p=", options().p); }

}  // namespace gradus::nn
