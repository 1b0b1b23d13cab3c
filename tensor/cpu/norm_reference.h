// The readable batch normalisation: computes f64, and checks the fast f32 kernels. Arguments as for the
// kernel slots in gradus/tensor/ops/norm.h.
#pragma once

#include "gradus/tensor/ops/norm.h"

namespace gradus {

void batch_norm_reference(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                          const Tensor& weight, const Tensor& bias, double eps);
void batch_norm_backward_reference(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                   const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                   const Tensor& weight, double eps);

}  // namespace gradus
