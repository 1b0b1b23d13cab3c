// Raw matrix products. The differentiable forms are in gradus/autograd/ops/linalg/matmul.h.
#pragma once

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

Tensor matmul(const Tensor& a, const Tensor& b);
// The same, but 16-bit floats give the f32 sums that matmul would round.
Tensor matmul_in_f32(const Tensor& a, const Tensor& b);
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {});

// out[G...,M,K] = a[G...,M,K] b[G...,K,N] + bias[N]: all of one floating dtype (without a bias, out may be
// f32 for 16-bit floats), out row-major, bias undefined or row-major, the last two dims of a and b dense in
// either order, batch dims G of equal number with stride 0 where they broadcast.
extern KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> matmul_kernel;

}  // namespace gradus::raw
