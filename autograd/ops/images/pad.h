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

// Pads dims of x: pads[0] cells in front of the last dim and pads[1] behind it, pads[2] and pads[3] around
// the last but one, and so on; negative numbers crop. kConstant takes any tensor and any number of dims, and
// keeps the layout. The others take floating x of 2 to 5 dims whose padded dims lie behind the channels, and
// give channels-last: kReflect mirrors without repeating the edge, kReplicate repeats the edge, kCircular
// goes on at the other end.
// Shapes: x [N,C,H,W], pads {l,r,t,b} -> [N,C,H+t+b,W+l+r].
// Errors: ValueError for an odd number of pads, a value that x's dtype cannot hold, or more cells
// than there are to
//   reflect or to go on with; ShapeError for more pads than dims, for a result of negative size, or dims that
//   the mode is not for; DTypeError unless floating, but for kConstant.
// Grad: dy with the padding cut off; for the other modes, with it added to the cells it came from.
Tensor pad(const Tensor& x, const std::vector<int64_t>& pads, const PadOptions& options = {});

}  // namespace gradus
