// Resizing signals [N,C,L], images [N,C,H,W] and volumes [N,C,D,H,W]. Results lie channels-last. 16-bit
// floats are computed in f32.
#pragma once

#include "gradus/tensor/ops/images/resample.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// How a cell between input cells gets its value. For 3 to 5 dims: kNearest (as PyTorch's "nearest":
// rounds down), kNearestExact and kArea (means). For 3 dims: kLinear. For 4: kBilinear and kBicubic.
// For 5: kTrilinear.
enum class Interpolation { kNearest, kNearestExact, kLinear, kBilinear, kBicubic, kTrilinear, kArea };

struct InterpolateOptions {
  Dims size = {};                         // one per dim after the channels; or
  std::vector<double> scale_factor = {};  // one per such dim, or one for all
  Interpolation mode = Interpolation::kNearest;
  bool align_corners = false;  // keeps the corner cells' centers in place; linear and cubic modes
  bool antialias = false;  // when shrinking, averages the input between output cells; bilinear and bicubic
};

// Resizes by interpolation: y[n,c,p,q] = x at ((p + 1/2) H/P - 1/2, (q + 1/2) W/Q - 1/2). A given scale
// factor takes the place of P/H.
// Shapes: x [N,C,H,W] -> [N,C,P,Q], where P is given by size or is floor(scale_factor H), Q alike.
// Errors: ShapeError for dims that the mode does not take; ValueError unless exactly one of size and
// scale_factor is given, with one positive entry per dim, and for align_corners or antialias with other
// modes; DTypeError unless floating.
// Grad: the transpose, which is linear again.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

// Resamples x by one sparse matrix per axis; gradus/tensor/ops/images/resample.h describes the matrices.
// Errors: ShapeError when the matrices do not fit; DTypeError unless floating.
// Grad: dy resampled by the transposed matrices.
Tensor resample(const Tensor& x, const Resampling& map);

}  // namespace gradus
