// The reference convolution: im2col and Eigen's matrix product, for 1 to 3 dims, any groups, strides and
// dilations. Computes f64, and f32 on ARM; tests compare the fast kernels with it. See ConvProblem for operands
// and directions.
#pragma once

#include "gradus/tensor/cpu/conv/kernels.h"

namespace gradus {

void conv_reference(const ConvProblem& p);
void conv_input_grad_reference(const ConvProblem& p);
void conv_weight_grad_reference(const ConvProblem& p);

}  // namespace gradus
