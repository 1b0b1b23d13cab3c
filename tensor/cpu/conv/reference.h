// The readable convolution: unfolds the image into a matrix of patches and multiplies with Eigen. It computes
// f64, and tests compare the fast f32 kernels with it.
#pragma once

#include "gradus/tensor/cpu/conv/kernels.h"

namespace gradus {

void conv_reference(const ConvProblem& p);
void conv_input_grad_reference(const ConvProblem& p);
void conv_weight_grad_reference(const ConvProblem& p);

}  // namespace gradus
