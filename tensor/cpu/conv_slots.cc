// The slots that conv.cc fills.
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/conv.h"

namespace gradus::raw {

constinit decltype(conv_kernel) conv_kernel{"conv"};
constinit decltype(conv_input_grad_kernel) conv_input_grad_kernel{"conv_input_grad"};
constinit decltype(conv_weight_grad_kernel) conv_weight_grad_kernel{"conv_weight_grad"};

}  // namespace gradus::raw
