// Padding and cropping, as torch.nn.functional.pad.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

enum class PadMode { kConstant, kReflect, kReplicate, kCircular };

struct PadOptions {
  PadMode mode = PadMode::kConstant;
  double value = 0;  // of kConstant
};

// Adds pads[0] elements before and pads[1] after the last dim of x, pads[2] before and pads[3] after the second to
// last dim, and so on. Negative numbers crop. kConstant takes x of any dtype and number of dims, and keeps its
// layout. The other modes take floating-point x of 2 to 5 dims, pad only dims after the channels, and return
// channels-last tensors: kReflect mirrors without repeating the edge element, kReplicate repeats the edge
// element, kCircular continues at the other end.
// Shapes: x [N,C,H,W], pads {l,r,t,b} -> [N,C,H+t+b,W+l+r].
// Errors: ValueError for an odd number of pads, a value that x's dtype cannot represent, a reflection of as many
// elements as the dim has or more, or a circular padding larger than the dim; ShapeError for more pads than
// dims, for a result of negative size, or for dims that the mode does not take; DTypeError unless floating,
// except for kConstant.
// Grad: dy without the padding; for the other modes, the gradient of the padding is added to the elements that
// were copied.
Tensor pad(const Tensor& x, const std::vector<int64_t>& pads, const PadOptions& options = {});

}  // namespace gradus
