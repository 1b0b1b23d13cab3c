// Differentiable unfold and fold. unfold (im2col): images [N,C,H,W] -> columns [N, C * KH * KW, P * Q], one column
// per window of KH x KW pixels, with P x Q windows in an image. fold (col2im) adds each column to the pixels of
// its window. The two maps are linear and transposes of each other: the gradient of unfold is fold(dy) and that of
// fold is unfold(dy). Gradients are differentiable ops themselves, so higher orders need no code. Backward needs
// only the options and the image size; no tensor is saved. raw::unfold and raw::fold check the arguments (errors:
// unfold.h).
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
