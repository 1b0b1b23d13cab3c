// The gradient of a convolution's bias.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// db[o] = the sum of dy over all pixels. Sums of 64 pixels are in f32, those of sums in f64, so the result
// does not depend on the number of threads.
// Shapes: dy [N,O,...], channels-last, f32 or bf16; db [O] of any floating dtype.
void bias_grad(const Tensor& db, const Tensor& dy);

}  // namespace gradus
