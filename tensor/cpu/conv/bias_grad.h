// The gradient of a convolution's bias: a sum over pixels.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// db[o] = sum of dy[n, o, ...] over images and pixels. Blocks of 64 pixels are summed in f32, the sums of blocks
// in f64, in an order that does not depend on the number of threads.
// Shapes: dy [N,O,...], channels-last, f32 or bf16; db [O] of any floating dtype.
void bias_grad(const Tensor& db, const Tensor& dy);

}  // namespace gradus
