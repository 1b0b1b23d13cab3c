// Reading images at given positions. Results lie channels-last.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

enum class SampleMode { kBilinear, kNearest, kBicubic };
enum class SamplePadding { kZeros, kBorder, kReflection };  // the values outside of the image

struct GridSampleOptions {
  SampleMode mode = SampleMode::kBilinear;
  SamplePadding padding = SamplePadding::kZeros;
  bool align_corners = false;  // -1 and 1 are the centers of the corner cells, not their outer edges
};

// Reads x at the positions grid[n,p,q] = (horizontal, vertical). In each direction an image reaches from -1
// to 1. kBicubic combines 4 x 4 cells by cubic convolution (a = -0.75) and may overshoot. Cells outside
// follow the padding.
// Shapes: x [N,C,H,W], grid [N,P,Q,2] -> [N,C,P,Q].
// Errors: ShapeError; DTypeError unless both are f32 or both f64; DeviceError.
// Grad: to x and, except for kNearest, to the grid; both of any order.
// Source: Jaderberg et al. 2015, https://arxiv.org/abs/1506.02025
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});

struct AffineGridOptions {
  bool align_corners = false;
};
// Returns the grid that maps an image of `size` by the matrices theta: grid[n,p,q] = theta[n] (u, v, 1). (u,
// v) is the position of cell (p, q).
// Shapes: theta [N,2,3] -> [N,size.h,size.w,2].
// Errors: ShapeError; ValueError for a size below 1; DTypeError unless f32 or f64.
Tensor affine_grid(const Tensor& theta, Size2 size, const AffineGridOptions& options = {});

}  // namespace gradus
