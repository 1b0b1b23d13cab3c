// Pooling over image windows, differentiable. Options: gradus/tensor/ops/pool.h.
#pragma once

#include "gradus/tensor/ops/pool.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Takes the maximum of each window: y[n,c,p,q] = max over i,j of x[n, c, p*stride - padding + i*dilation,
// ...]. The first of equal cells, row by row, wins and gets the gradient; a NaN wins over numbers. The result
// lies channels-last. Shapes: x [N,C,H,W] -> [N,C,P,Q], P = floor((H + 2 padding - dilation (kernel-1) - 1) /
// stride) + 1 (ceil with
//   ceil_mode, unless the last window would start beyond the image).
// Errors: ShapeError for other dims or a window larger than the padded image; ValueError for sizes out of
// range or a
//   padding of more than half the window; DTypeError unless f32 or f64.
Tensor max_pool2d(const Tensor& x, const MaxPool2dOptions& options);

// Takes the mean of each window; the padding counts as zeros, or not at all without count_include_pad.
// Shapes, Errors: as max_pool2d.
Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& options);

// Cut each image into `output` windows as even as possible, window p covering rows floor(pH/P) to
// ceil((p+1)H/P), and take each one's mean or maximum. Shapes: x [N,C,H,W] -> [N,C,output.h,output.w].
Tensor adaptive_avg_pool2d(const Tensor& x, Size2 output);
Tensor adaptive_max_pool2d(const Tensor& x, Size2 output);

// The ops that max pooling's derivatives are made of: a gradient moved to the cells that an index names, and
// the cells of an image that it names. Each is the other's gradient.
Tensor max_pool2d_scatter(const Tensor& dy, const Tensor& index, const PoolWindows& windows);
Tensor max_pool2d_gather(const Tensor& x, const Tensor& index, const PoolWindows& windows);
// Average pooling's gradient, each dy spread evenly over its window.
Tensor avg_pool2d_spread(const Tensor& dy, const PoolWindows& windows);

}  // namespace gradus
