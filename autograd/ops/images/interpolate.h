// Resizing signals [N,C,L], images [N,C,H,W] and volumes [N,C,D,H,W]. Results lie channels-last; 16-bit
// floats are computed in f32.
#pragma once

#include "gradus/tensor/ops/images/resample.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// How a cell between input cells gets its value: kNearest (as PyTorch's "nearest": rounds down) and
// kNearestExact for 3 to 5 dims, kLinear for 3, kBilinear and kBicubic for 4, kTrilinear for 5, kArea
// (means) for 3 to 5.
enum class Interpolation { kNearest, kNearestExact, kLinear, kBilinear, kBicubic, kTrilinear, kArea };

struct InterpolateOptions {
  Dims size = {};                         // one per dim behind the channels; or
  std::vector<double> scale_factor = {};  // one per such dim, or one for all
  Interpolation mode = Interpolation::kNearest;
  bool align_corners = false;  // the corner cells' centers stay where they are; linear and cubic modes
  bool antialias = false;      // when shrinking, average what lies between; bilinear and bicubic
};

// Resizes: y[n,c,p,q] = x at ((p + 1/2) H/P - 1/2, (q + 1/2) W/Q - 1/2), interpolated. A scale factor, where
// given, is used as such in place of P/H.
// Shapes: x [N,C,H,W] -> [N,C,P,Q], size or floor(scale_factor H).
// Errors: ShapeError for dims that the mode is not for; ValueError unless exactly one of size and
// scale_factor is given,
//   with one entry per dim, and positive; and for align_corners or antialias with other modes; DTypeError
//   unless floating.
// Grad: the transpose, which is linear again.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

// Resamples x by one sparse matrix per axis: gradus/tensor/ops/images/resample.h.
// Errors: ShapeError when the matrices do not fit; DTypeError unless floating.
// Grad: dy resampled by the transposed matrices.
Tensor resample(const Tensor& x, const Resampling& map);

}  // namespace gradus
