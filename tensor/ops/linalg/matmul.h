// Raw matmul and linear, as in PyTorch. The differentiable forms are in gradus/autograd/ops/linalg/matmul.h.
#pragma once

#include <utility>

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Returns the row-major product; 1-dimensional operands are vectors, and batch dims broadcast.
// Errors: ShapeError; DTypeError unless a and b have one floating dtype; DeviceError.
Tensor matmul(const Tensor& a, const Tensor& b);
// Returns matmul(a, b) as f32 for 16-bit floats: the sums before rounding.
Tensor matmul_in_f32(const Tensor& a, const Tensor& b);
// Return x w^T + bias, and its relu; errors as matmul. Shapes: x[...,K], w[N,K], bias[N] or none -> [...,N].
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {});
Tensor linear_relu(const Tensor& x, const Tensor& w, const Tensor& bias = {});
// Returns the gradients of linear's weight and bias in `dtype`, f32 or the dtype of the operands, on a GPU:
//   dw[N,M] = dy[K,N]^T x[K,M],  dbias[N] = sum of dy over its rows
// Errors: as matmul; DeviceError for tensors on the CPU.
std::pair<Tensor, Tensor> linear_weight_grad(const Tensor& dy, const Tensor& x, DType dtype);

// The kernel, with arguments out, a, b and bias:
//   out[G...,M,N] = a[G...,M,K] b[G...,K,N] + bias[N]
// All have one floating dtype, except that without a bias, out may be f32 if a and b have 16 bits. out is
// row-major and not empty (K may be 0); bias is row-major or undefined. The matrices of a and b are row- or
// column-major with a leading dimension: one of the last two dims has stride 1. a and b have the same number
// of batch dims G, with stride 0 where they broadcast.
extern KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> matmul_kernel;
// The same with relu applied to the result.
extern KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> matmul_relu_kernel;
// The kernel of linear_weight_grad on GPUs, with arguments dw, dbias, dy and x. dw and dbias are row-major. dy and x
// are row- or column-major with a leading dimension, and may be empty.
extern KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> linear_weight_grad_kernel;

namespace internal {  // for kernels
// Returns the view x[i], without the first dim.
Tensor matrix(const Tensor& x, int64_t i);
// Replaces each pair of adjacent batch dims by one dim, if the strides of all three tensors allow a view with the
// merged dim. All three have the same batch dims.
void merge_batch(Tensor& out, Tensor& a, Tensor& b);

}  // namespace internal
}  // namespace gradus::raw
