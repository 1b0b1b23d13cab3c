// im2col and col2im: windows of images as columns of a matrix. Results are row-major; 16-bit floats are
// computed in f32. Options (gradus/tensor/ops/images/unfold.h): kernel (required), stride 1, padding 0 (zeros
// on every side) and dilation 1.
#pragma once

#include "gradus/tensor/ops/images/unfold.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns the windows of images as columns (im2col):
//   y[n, (c KH + i) KW + j, p Q + q] =
//       x[n, c, p stride - padding + i dilation, q stride - padding + j dilation], 0 outside
// Shapes: x [N,C,H,W] -> [N, C KH KW, P Q], P = floor((H + 2 padding - dilation (KH-1) - 1) / stride) + 1.
// Errors: ShapeError for other dims or a window larger than the padded image; ValueError for sizes out of
// range; DTypeError unless floating.
// Grad: fold of dy.
Tensor unfold(const Tensor& x, const UnfoldOptions& options);

// Adds columns to the windows of images of size `output` (col2im): the transpose of unfold.
// Shapes: x [N, C KH KW, P Q] -> [N,C,output.h,output.w].
// Errors: as unfold; ShapeError also for other numbers of rows or columns.
// Grad: unfold of dy.
Tensor fold(const Tensor& x, Size2 output, const UnfoldOptions& options);

}  // namespace gradus
