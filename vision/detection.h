// Parts of networks that detect objects, as in torchvision.ops.
#pragma once

#include "gradus/tensor/base/required.h"
#include "gradus/tensor/ops/losses/cross_entropy.h"  // Reduction
#include "gradus/tensor/tensor.h"

namespace gradus::vision {

struct RoiAlignOptions {
  Required<Size2, "output_size"> output_size;  // 1 to 1024
  double spatial_scale = 1;                    // pixels of x per unit of the boxes
  int64_t sampling_ratio = -1;  // samples per cell and axis; below 1: ceil(pixels of the box / cells)
  bool aligned = false;  // pixel centers are at +1/2; false: boxes have at least one pixel, as in Mask R-CNN
};
// Returns for each cell of a grid in each box the mean of bilinear samples of x. A box is the number n of the image
// and left, top, right, bottom. Samples further than a pixel outside of x are 0. The weights of the samples are computed
// on the host: boxes on a GPU are copied, and the call waits.
// Shapes: x [N,C,H,W], boxes [K,5] -> [K,C,output_size.h,output_size.w].
// Errors: ShapeError; DTypeError unless x and boxes are floating; DeviceError; ValueError for options out of range, and
// for boxes that are not finite or need more than 65536 samples per cell and axis; IndexError for n outside of [0, N).
// Grad: to x, dy times the weights of the samples. None to the boxes.
// Source: He et al., "Mask R-CNN", ICCV 2017.
Tensor roi_align(const Tensor& x, const Tensor& boxes, const RoiAlignOptions& options);

struct SigmoidFocalLossOptions {
  double alpha = 0.25;  // weight of targets 1, while those of 0 have 1 - alpha; -1: no weights
  double gamma = 2;     // weight of an example: (1 - probability of its target)^gamma
  Reduction reduction = Reduction::kNone;
};
// loss = alpha_t (1 - p_t)^gamma bce, bce = -log p_t, p_t = p for target 1 and 1 - p for target 0, p = sigmoid(x).
// Shapes: x, target of one shape.
// Errors: those of binary_cross_entropy_with_logits; ValueError unless alpha is -1 or in [0, 1].
// Source: Lin et al., "Focal loss for dense object detection", ICCV 2017.
Tensor sigmoid_focal_loss(const Tensor& x, const Tensor& target, const SigmoidFocalLossOptions& options = {});

}  // namespace gradus::vision
