// The problems that Gradus gives to oneDNN, and the choice of the implementation. All differences between
// oneDNN's versions are handled here. docs/kernels.md lists the implementations that are passed over.
#pragma once

#include <optional>

#include "gradus/tensor/cpu/onednn/onednn.h"
#include "gradus/tensor/ops/images/conv.h"

namespace gradus::onednn {

enum class Pass { kForward, kInputGrad, kWeightGrad };

// The layout of channels-last images [N,C,H,W] or volumes [N,C,D,H,W].
Desc image_layout(const Tensor& x);

// Returns a plan to convolve x[N,C,...] by w[O,C/groups,...] into y[N,O,...], or to compute the gradient of x
// or of w. The bias, its gradient and the filters have y's dtype. With `own_layout` the images have the
// layouts that oneDNN prefers (plan.src, plan.dst), otherwise they are channels-last.
// Errors: dnnl::error (unimplemented) where no implementation serves, or each one is known to err.
Plan conv_plan(Pass pass, const Tensor& x, const Tensor& w, const Tensor& y, const raw::ConvGeometry& g,
               bool with_bias, bool own_layout = false);

// A matrix [rows, columns] or a batch of matrices: sizes, and steps in elements.
struct Matrices {
  dnnl::memory::dims sizes, steps;
};

// Returns whether oneDNN has a memory descriptor for this layout: ordered by their steps, each dim begins where the one
// inside it ends or later. Matrices of a batch that overlap or interleave have none.
bool can_describe(const Matrices& m);

// Returns a plan to multiply a by b, both of `dtype`, and to add a bias to each row. `out` is row-major.
// Errors: as conv_plan.
Plan matmul_plan(DType dtype, const Matrices& a, const Matrices& b, const Tensor& out, bool with_bias);

// A layout in blocks. Each block cuts a dim, from the outermost block to the innermost.
struct Blocking {
  dnnl::memory::dims sizes, padded_sizes, steps, block_sizes, block_dims;
};
// Returns nothing for layouts of another kind, and for layouts that do not begin where their memory begins.
std::optional<Blocking> blocking_of(const Desc& layout);

}  // namespace gradus::onednn
