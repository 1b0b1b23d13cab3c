// Boxes drawn into images, as torchvision.utils.draw_bounding_boxes without labels.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::vision {

struct DrawBoundingBoxesOptions {
  std::vector<std::array<uint8_t, 3>> colors =
      {};             // RGB of each box, or one of all; empty: torchvision's palette
  bool fill = false;  // also the inside, with an opacity of 100 / 255
  int64_t width = 1;  // of the outlines, inside of boxes that are as large as it
};

// Returns a copy of the image with outlines of the boxes: left, top, right, bottom in pixels, truncated to integers;
// right and bottom belong to the box. Later boxes cover earlier ones. Computed on the host; not recorded.
// Shapes: image u8[3,H,W], boxes [N,4] -> u8[3,H,W].
// Errors: ShapeError; DTypeError unless the image is u8; ValueError for right < left, bottom < top, a coordinate that
// is not finite, a width below 1, or a number of colors that is neither 0, 1 nor at least N.
Tensor draw_bounding_boxes(const Tensor& image, const Tensor& boxes,
                           const DrawBoundingBoxesOptions& options = {});

}  // namespace gradus::vision
