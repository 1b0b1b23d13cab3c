// grid_sample and affine_grid: sampling of images at arbitrary positions, as in spatial transformers. Results
// are channels-last.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

enum class SampleMode { kBilinear, kNearest, kBicubic };
enum class SamplePadding { kZeros, kBorder, kReflection };  // the values outside of the image

struct GridSampleOptions {
  SampleMode mode = SampleMode::kBilinear;
  SamplePadding padding = SamplePadding::kZeros;
  bool align_corners = false;  // -1 and 1 are the centers of the corner pixels; false: their outer edges
};

// y[n,c,p,q] = x[n,c] interpolated at grid[n,p,q] = (horizontal, vertical), where an image extends from -1 to
// 1 in each direction. kBicubic uses cubic convolution of 4 x 4 pixels (a = -0.75) and may overshoot the
// range of x. The padding mode defines the values outside of the image.
// Shapes: x [N,C,H,W], grid [N,P,Q,2] -> [N,C,P,Q].
// Errors: ShapeError; DTypeError unless both are f32 or both f64; DeviceError.
// Grad: to x and, except for kNearest, to the grid; both of any order.
// Source: Jaderberg et al. 2015, https://arxiv.org/abs/1506.02025
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});

struct AffineGridOptions {
  bool align_corners = false;
};
// Returns the sampling grid of affine maps: grid[n,p,q] = theta[n] (u, v, 1)^T, where (u, v) is the position
// of output pixel (p, q), in [-1, 1].
// Shapes: theta [N,2,3] -> [N,size.h,size.w,2].
// Errors: ShapeError; ValueError for a size below 1; DTypeError unless f32 or f64.
Tensor affine_grid(const Tensor& theta, Size2 size, const AffineGridOptions& options = {});

}  // namespace gradus
