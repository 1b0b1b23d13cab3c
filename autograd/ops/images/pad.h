// Padding and cropping.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

enum class PadMode { kConstant, kReflect, kReplicate, kCircular };

struct PadOptions {
  PadMode mode = PadMode::kConstant;
  double value = 0;  // of kConstant
};

// Pads dims of x: pads[0] cells before the last dim and pads[1] after it, pads[2] and pads[3] around the last
// but one, and so on. Negative numbers crop. kConstant takes a tensor of any dtype and any number of dims,
// and keeps its layout. The other modes take floating x of 2 to 5 dims, pad only dims after the channels, and
// return channels-last. kReflect mirrors without repeating the edge, kReplicate repeats the edge, kCircular
// continues at the other end.
// Shapes: x [N,C,H,W], pads {l,r,t,b} -> [N,C,H+t+b,W+l+r].
// Errors: ValueError for an odd number of pads, a value that x's dtype cannot hold, or more cells than x has
// to reflect or to continue with; ShapeError for more pads than dims, for a result of negative size, or for
// dims that the mode does not take; DTypeError unless floating, except for kConstant.
// Grad: dy without the padding; for the other modes the padding's gradient is added to the cells it
// was copied from.
Tensor pad(const Tensor& x, const std::vector<int64_t>& pads, const PadOptions& options = {});

}  // namespace gradus
