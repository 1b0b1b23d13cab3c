// unfold (im2col): images [N,C,H,W] -> columns [N, C * KH * KW, P * Q], one column per window; fold (col2im) adds
// columns to the images at their windows. Both are linear and transposes of each other, so the gradient of one is
// the other of dy, for any order. Backward needs only the options and the image size; no tensor is saved. The raw
// functions check the arguments (errors: see the header).
#include "gradus/autograd/ops/images/unfold.h"

#include "gradus/autograd/graph/record.h"
#include "gradus/tensor/op_call.h"

namespace gradus {

Tensor unfold(const Tensor& x, const UnfoldOptions& options) {
  const OpCall call("unfold", {{"x", x}});
  Tensor y = raw::unfold(x, options);
  if (Recorder r{"unfold", x})
    r.record(y, wrt(x, [options, size = Size2(x.size(2), x.size(3))](const Tensor& dy) {
               return fold(dy, size, options);
             }));
  return y;
}

Tensor fold(const Tensor& x, Size2 output, const UnfoldOptions& options) {
  const OpCall call("fold", {{"x", x}});
  return autograd::record_unary("fold", x, raw::fold(x, output, options),
                                [options](const Tensor& dy) { return unfold(dy, options); });
}

}  // namespace gradus
