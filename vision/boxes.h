// Boxes in images, as in torchvision.ops: areas, overlaps, conversion, clipping, non-maximum suppression.
//
// Errors of all: StateError for an undefined tensor; ShapeError unless boxes are [...,4]; DTypeError for bools;
// DeviceError for tensors on different devices. Differentiable in the boxes, except nms.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::vision {

// Left, top, right, bottom; left, top, width, height; center, width, height.
enum class BoxFormat { kXyxy, kXywh, kCxcywh };

// Shapes: boxes [...,4] -> the same.
Tensor box_convert(const Tensor& boxes, BoxFormat in_fmt, BoxFormat out_fmt);

// Areas, in f32 for 16-bit floats and i32 for smaller integers.
// Shapes: boxes [...,4] -> [...].
Tensor box_area(const Tensor& boxes, BoxFormat fmt = BoxFormat::kXyxy);

// Intersection over union of each pair: iou = |a and b| / |a or b|, NaN for two boxes without area.
// Shapes: boxes1 [...,N,4], boxes2 [...,M,4] -> [...,N,M].
Tensor box_iou(const Tensor& boxes1, const Tensor& boxes2, BoxFormat fmt = BoxFormat::kXyxy);

// y = iou - (|c| - |a or b|) / |c|, c the smallest box around a and b; boxes are kXyxy.
// Shapes: boxes1 [...,N,4], boxes2 [...,M,4] -> [...,N,M].
// Source: Rezatofighi et al., "Generalized intersection over union", CVPR 2019.
Tensor generalized_box_iou(const Tensor& boxes1, const Tensor& boxes2);

// Clamps boxes (kXyxy) to an image of this size.
// Shapes: boxes [...,4] -> the same.
Tensor clip_boxes_to_image(const Tensor& boxes, Size2 size);

// Non-maximum suppression: returns the indices of the boxes (kXyxy) that are kept, by descending score. A box is
// dropped if its iou with a kept box of a higher score is above the threshold. Equal scores count in the order of the
// boxes. batched_nms compares boxes with equal `idxs`, such as classes, alone. Runs on the host: for tensors on a GPU
// the call waits and copies boxes and scores.
// Shapes: boxes [N,4], scores [N], idxs i[N] -> i64[count].
// Errors: also ShapeError; DTypeError unless boxes and scores are floating and idxs integers; ValueError for a
// threshold that is NaN.
Tensor nms(const Tensor& boxes, const Tensor& scores, double iou_threshold);
Tensor batched_nms(const Tensor& boxes, const Tensor& scores, const Tensor& idxs, double iou_threshold);

}  // namespace gradus::vision
