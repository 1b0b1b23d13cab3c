// Raw unfold (im2col) and fold (col2im), which are transposes of each other. The differentiable forms are in
// gradus/autograd/ops/images/unfold.h.
#pragma once

#include "gradus/tensor/base/required.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

struct UnfoldOptions {
  Required<Size2, "kernel"> kernel;
  Size2 stride = 1;
  Size2 padding = 0;  // zeros on every side
  Size2 dilation = 1;
};

namespace raw {

// The windows over an image [C,H,W] of size `image`: blocks.h * blocks.w positions, `stride` apart.
struct UnfoldWindows {
  Size2 image, blocks, kernel, stride, padding, dilation;
};
// Along a side n there are (n + 2 padding - dilation (kernel - 1) - 1) / stride + 1 positions.
// Errors: ValueError for an option out of range, ShapeError if the padded image is smaller than a window.
UnfoldWindows unfold_windows(const char* op, Size2 image, const UnfoldOptions& options);

// Returns the columns of images x [N,C,H,W]: column b is the window at position b, with zeros for padding.
// Errors: as unfold_windows; ShapeError for another number of dims; DTypeError unless x is floating.
Tensor unfold(const Tensor& x, const UnfoldOptions& options);
// Returns images of size `output`, to which the columns x are added at their positions. Shapes: see kernels.
// Errors: as unfold; ValueError for an output size below 1.
Tensor fold(const Tensor& x, Size2 output, const UnfoldOptions& options);

// Kernels: f32 or f64, row-major, not empty. Shapes of the tensors:
//   images [N,C,H,W], columns [N, C * kernel.h * kernel.w, blocks.h * blocks.w]
extern KernelSlot<void(const Tensor& columns, const Tensor& images, UnfoldWindows)> unfold_kernel;
extern KernelSlot<void(const Tensor& images, const Tensor& columns, UnfoldWindows)> fold_kernel;

}  // namespace raw
}  // namespace gradus
