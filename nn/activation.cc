#include "gradus/nn/activation.h"

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/softmax.h"

namespace gradus::nn {

Tensor ReLU::forward(const Tensor& x) { return relu(x); }
Tensor ReLU::forward_temporary(Tensor&& x) { return relu(std::move(x)); }
Tensor LeakyReLU::forward(const Tensor& x) { return leaky_relu(x, options().negative_slope); }
std::string LeakyReLU::extra_repr() const { return concat("negative_slope=", options().negative_slope); }
Tensor Sigmoid::forward(const Tensor& x) { return sigmoid(x); }
Tensor Tanh::forward(const Tensor& x) { return tanh(x); }
Tensor GELU::forward(const Tensor& x) { return gelu(x); }
Tensor SiLU::forward(const Tensor& x) { return silu(x); }
Tensor Softmax::forward(const Tensor& x) { return softmax(x, options().dim); }
std::string Softmax::extra_repr() const { return concat("dim=", *options().dim); }
Tensor LogSoftmax::forward(const Tensor& x) { return log_softmax(x, options().dim); }
std::string LogSoftmax::extra_repr() const { return concat("dim=", *options().dim); }

}  // namespace gradus::nn
