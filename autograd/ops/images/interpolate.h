// Resizing of signals [N,C,L], images [N,C,H,W] and volumes [N,C,D,H,W]. Results are channels-last. 16-bit
// floats are computed in f32.
#pragma once

#include "gradus/tensor/ops/images/resample.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Interpolation modes, as in PyTorch. For 3 to 5 dims: kNearest (rounds positions down), kNearestExact
// (rounds to the nearest pixel) and kArea (mean over the output pixel's area). For 3 dims: kLinear. For 4:
// kBilinear and kBicubic. For 5: kTrilinear.
enum class Interpolation { kNearest, kNearestExact, kLinear, kBilinear, kBicubic, kTrilinear, kArea };

struct InterpolateOptions {
  // Exactly one of size and scale_factor is set, with one entry per spatial dim (scale_factor: or one entry).
  Dims size = {};                         // output size
  std::vector<double> scale_factor = {};  // output size / input size
  Interpolation mode = Interpolation::kNearest;
  bool align_corners = false;  // aligns the centers of the corner pixels; linear and cubic modes
  bool antialias = false;      // widens the filter when downsampling; bilinear and bicubic
};

// Resizes by interpolation: y[n,c,p,q] = x[n,c] at ((p + 1/2) H/P - 1/2, (q + 1/2) W/Q - 1/2); with
// align_corners at (p (H - 1)/(P - 1), ...); kNearest reads x at floor(p H/P). A scale factor, if passed,
// replaces P/H.
// Shapes: x [N,C,H,W] -> [N,C,P,Q], where P is given by size or is floor(scale_factor H), Q alike.
// Errors: ShapeError for dims that the mode does not take, or for no channels or pixels; ValueError unless
// exactly one of size and scale_factor is given, with one positive entry per dim, for align_corners or
// antialias with other modes, and for sizes above 2^27; DTypeError unless floating.
// Grad: dy resampled by the transposed matrices.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

// Resamples x by one sparse matrix per axis; gradus/tensor/ops/images/resample.h describes the matrices.
// Errors: ShapeError when the matrices do not fit; DTypeError unless floating.
// Grad: dy resampled by the transposed matrices.
Tensor resample(const Tensor& x, const Resampling& map);

}  // namespace gradus
