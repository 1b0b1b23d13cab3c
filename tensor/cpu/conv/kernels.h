// The convolution algorithms, and the interface between them and the tables in conv.cc that select one.
#pragma once

#include <memory>

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

namespace onednn {
struct Plan;
}

// A convolution y = conv(x, w) + bias of channels-last images, or one of its gradients. The forward reads x, w and
// bias and writes y. The input gradient writes x from w and y, the weight gradient writes w and bias from x and y:
// then these members are the gradients dx, dw, db and dy. `bias` may be undefined. The members refer to
// tensors of the caller, which are allocated and not empty; kernels write all elements of the results.
struct ConvProblem {
  const Tensor &x, &w, &bias, &y;
  const raw::ConvGeometry& geometry;
  mutable std::shared_ptr<const onednn::Plan> plan =
      nullptr;  // `applies` of oneDNN's kernel sets it for `run`
};

// One algorithm for one direction. The profiler shows its name.
struct ConvKernel {
  const char* name;
  bool (*applies)(const ConvProblem&);  // supported, and faster than the later entries of the table
  void (*run)(const ConvProblem&);
};

// One algorithm for all directions. The functions of unsupported directions are null.
struct ConvKernels {
  ConvKernel forward = {}, input_grad = {}, weight_grad = {};
};

// 1x1 convolution with stride 1, without bias, and its gradients, as matrix products of f32 or bf16.
const ConvKernels& pointwise_kernels();

// Winograd convolution F(2x2, 3x3) with 3x3 filters and stride 1, and its gradients: 2.25 times fewer
// multiplications than direct convolution. Images are f32, or bf16 on processors without AVX512_BF16.
// Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
const ConvKernels& winograd_kernels();
// Winograd convolution F(2x2, 2x2) with 4x4 filters, stride 2 and padding 1 (which halves height and width, as in
// DCGAN), and its gradients: 1.78 times fewer multiplications. Images as for winograd_kernels().
const ConvKernels& winograd_stride2_kernels();

// Input and weight gradients for a mostly zero output gradient dy, as max pooling gives it: a 2x2 window passes
// its gradient to one of four pixels. Visits only the nonzeros of dy. Applies to one group, 3x3 and 5x5 filters
// with some numbers of channels (kKernels in sparse_grad.cc), a number of filters that is divisible by the vector
// length, no horizontal dilation, and few nonzeros in a sample of dy. Images as for winograd_kernels().
const ConvKernels& sparse_grad_kernels();

// The weight gradient of 2-dim convolution over bf16 images, for processors with AVX512_BF16: one group, at least
// 16 channels and at least 8 filters. Has only a weight gradient. Defined only on x86-64.
const ConvKernels& bf16_weight_grad_kernels();

// The reference: im2col and Eigen's matrix product, for 1 to 3 dims, any groups, strides and dilations. Computes
// f64, and f32 on ARM; tests compare the fast kernels with it.
void conv_reference(const ConvProblem& p);
void conv_input_grad_reference(const ConvProblem& p);
void conv_weight_grad_reference(const ConvProblem& p);

// The gradient of the bias: db[o] = sum of dy[n, o, ...] over images and pixels. Blocks of 64 pixels are summed in
// f32, the sums of blocks in f64, in an order that does not depend on the number of threads.
// Shapes: dy [N,O,...], channels-last, f32 or bf16; db [O] of any floating dtype.
void bias_grad(const Tensor& db, const Tensor& dy);

}  // namespace gradus
