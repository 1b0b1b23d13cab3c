// What oneDNN is asked to compute, and which of its implementations serves. What its versions call
// differently is here alone; docs/kernels.md lists the implementations that are passed over.
#pragma once

#include <optional>

#include "gradus/tensor/cpu/onednn/onednn.h"
#include "gradus/tensor/ops/images/conv.h"

namespace gradus::onednn {

enum class Pass { kForward, kInputGrad, kWeightGrad };

// The layout of channels-last images [N,C,H,W] or volumes [N,C,D,H,W].
Desc image_layout(const Tensor& x);

// Returns how oneDNN convolves x[N,C,...] by w[O,C/groups,...] into y[N,O,...], or computes the gradient of x
// or of w in their place. The bias, its gradient and the filters have y's dtype. With `own_layout` the images
// lie as oneDNN likes best (plan.src, plan.dst), else channels-last.
// Errors: dnnl::error, unimplemented, where no implementation serves or each is known to err.
Plan conv_plan(Pass pass, const Tensor& x, const Tensor& w, const Tensor& y, const raw::ConvGeometry& g,
               bool with_bias, bool own_layout = false);

// A matrix [rows, columns] or a batch of them: sizes, and steps in elements.
struct Matrices {
  dnnl::memory::dims sizes, steps;
};

// Returns how oneDNN multiplies a by b, both of the dtype, and adds a bias to each row: into row-major `out`.
// Errors: as conv_plan.
Plan matmul_plan(DType dtype, const Matrices& a, const Matrices& b, const Tensor& out, bool with_bias);

// A layout in blocks. Each block cuts a dim, from the outermost block to the innermost.
struct Blocking {
  dnnl::memory::dims sizes, padded_sizes, steps, block_sizes, block_dims;
};
// Nothing for layouts of another kind, and for those that do not begin where their memory does.
std::optional<Blocking> blocking_of(const Desc& layout);

}  // namespace gradus::onednn
