// Creates oneDNN primitives for convolutions and matrix products, and skips implementations with known bugs
// (defects.cc). All differences between versions 2 and 3 of oneDNN's API are handled here.
#pragma once

#include <optional>
#include <string_view>

#include "gradus/tensor/cpu/onednn/onednn.h"
#include "gradus/tensor/ops/images/conv.h"

namespace gradus::onednn {

enum class Pass { kForward, kInputGrad, kWeightGrad };

// The layout of channels-last images [N,C,H,W] or volumes [N,C,D,H,W].
Desc image_layout(const Tensor& x);

// Returns a plan for the convolution of x [N,C,...] with w [O,C/groups,...] into y [N,O,...], or for the gradient
// of x or of w. The bias and its gradient have w's dtype, which is y's, or f32 in kWeightGrad. With
// `any_layout`, for kWeightGrad only, the images have the layouts that oneDNN prefers (format_tag::any):
// plan.src and plan.dst. Otherwise they are channels-last.
// Errors: dnnl::error (unimplemented) if oneDNN has no implementation without a known bug.
Plan conv_plan(Pass pass, const Tensor& x, const Tensor& w, const Tensor& y, const raw::ConvGeometry& g,
               bool with_bias, bool any_layout = false);

// A matrix [rows, columns], or a batch of matrices [B, rows, columns]: sizes, and strides in elements.
struct MatrixLayout {
  dnnl::memory::dims sizes, strides;
};

// Returns whether oneDNN has a memory descriptor for this layout: with dims in order of their strides, each stride
// is at least the extent of the inner dims. Matrices of a batch that overlap or interleave have no descriptor.
bool has_memory_desc(const MatrixLayout& m);

// Returns a plan to multiply a by b, both of `dtype` and with memory descriptors, and to add a bias [columns]
// of `dtype` to each row. `out` is row-major, [rows, columns] or [B, rows, columns], f32 or bf16.
// Errors: as conv_plan.
Plan matmul_plan(DType dtype, const MatrixLayout& a, const MatrixLayout& b, const Tensor& out,
                 bool with_bias);

// Known bugs of oneDNN: implementations that give wrong results for some problems, access memory out of bounds, or
// crash. Found by tools/fuzz-conv.sh; the table is in defects.cc.

// Returns whether the implementation of this name is known to fail in this pass of a convolution of x with w.
bool has_defect(std::string_view implementation, Pass pass, const Shape& x, const Shape& w,
                const raw::ConvGeometry& g);
// Returns whether the implementation is known to fail for `batch` products a b on this number of threads.
bool has_matmul_defect(std::string_view implementation, const MatrixLayout& a, const MatrixLayout& b,
                       int64_t batch, int threads);

// A blocked layout as oneDNN describes it: inner blocks from the outermost to the innermost, each of size
// block_sizes[i] along dim block_dims[i].
struct Blocking {
  dnnl::memory::dims sizes, padded_sizes, strides, block_sizes, block_dims;
};
// Returns nullopt for layouts that are not blocked or have an offset.
std::optional<Blocking> blocking_of(const Desc& layout);

}  // namespace gradus::onednn
