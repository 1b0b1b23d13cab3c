// Raw matrix products. The differentiable forms are in gradus/autograd/ops/linalg/matmul.h.
#pragma once

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

Tensor matmul(const Tensor& a, const Tensor& b);
// Like matmul, but for 16-bit floats returns the sums in f32, unrounded.
Tensor matmul_in_f32(const Tensor& a, const Tensor& b);
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {});
Tensor linear_relu(const Tensor& x, const Tensor& w, const Tensor& bias = {});

// The kernel. Takes out, a, b and bias:
//   out[G...,M,N] = a[G...,M,K] b[G...,K,N] + bias[N]
// All have one floating dtype, except that without a bias out may be f32 where a and b have 16 bits. out is
// row-major; bias is undefined or row-major; the last two dims of a and b are dense in either order. a and b
// have the same number of batch dims G, with stride 0 where they broadcast.
extern KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> matmul_kernel;
// The same with relu of the result.
extern KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> matmul_relu_kernel;

}  // namespace gradus::raw
