// Padding and cropping, as torch.nn.functional.pad.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

enum class PadMode { kConstant, kReflect, kReplicate, kCircular };

struct PadOptions {
  PadMode mode = PadMode::kConstant;
  double value = 0;  // the value of added elements; only for kConstant
};

// Adds pads[0] elements before and pads[1] after the last dim of x, pads[2] before and pads[3] after the
// second to last dim, and so on. Negative numbers crop, in every mode; the padding of the other end still
// copies from all of x. kConstant takes x of any dtype and number of dims, and keeps its layout. The other
// modes take floating-point x [N,C,...] with 1 to 3 dims after the channels and at most as many pairs of
// pads, or x [C,...] if there is one pair for each dim but C; results are channels-last. kReflect mirrors
// without repeating the edge element, kReplicate repeats the edge element, kCircular continues at the other
// end.
// Shapes, for 2 pairs of pads {l,r,t,b}: x [N,C,H,W] -> [N,C,H+t+b,W+l+r]; other numbers of pairs likewise.
// Errors: ValueError for an odd number of pads, a value that x's dtype cannot represent, a reflection of as
// many elements as the dim has or more, or a circular padding larger than the dim; ShapeError for more pairs
// of pads than dims, for a result of negative size, or, except for kConstant, for other dims than above and
// for a padded dim of size 0; DTypeError unless floating, except for kConstant.
// Grad: for kConstant, dy without the padding, and 0 where x was cropped; for the other modes, dx[i] = the
// sum of dy over all copies of x[i].
Tensor pad(const Tensor& x, const std::vector<int64_t>& pads, const PadOptions& options = {});

}  // namespace gradus
