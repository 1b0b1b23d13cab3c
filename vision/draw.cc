// The pixels of Pillow's ImageDraw.rectangle: rows of the outline first, then columns between them.
#include "gradus/vision/draw.h"

#include <algorithm>
#include <cmath>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/op_call.h"

namespace gradus::vision {

Tensor draw_bounding_boxes(const Tensor& image, const Tensor& boxes, const DrawBoundingBoxesOptions& o) {
  constexpr const char* kOp = "draw_bounding_boxes";
  const OpCall call(kOp, {{"image", image}, {"boxes", boxes}});
  if (image.dim() != 3 || image.size(0) != 3 || boxes.dim() != 2 || boxes.size(1) != 4)
    throw ShapeError(kOp, "expected image [3,H,W] and boxes [N,4], got ", describe(image), " and ",
                     describe(boxes));
  if (image.dtype() != DType::kU8) throw DTypeError(kOp, "expected an image of u8, got ", describe(image));
  const auto count = size_t(boxes.size(0));
  if (o.width < 1) throw ValueError(kOp, "expected a width of at least 1, got ", o.width);
  if (o.colors.size() > 1 && o.colors.size() < count)
    throw ValueError(kOp, "expected a color for each of the ", count, " boxes, or one, got ",
                     o.colors.size());
  Tensor result = clone(contiguous(to(detach(image), kCPU)));
  const int64_t h = image.size(1), w = image.size(2), width = std::min(o.width, int64_t{1} << 40);
  uint8_t* const pixels = result.mutable_data<uint8_t>();
  const std::vector<double> corners = boxes.to_vector<double>();
  for (size_t i = 0; i < count; ++i) {
    int64_t box[4];
    for (size_t k = 0; k < 4; ++k) {
      const double x = corners[4 * i + k];
      if (!std::isfinite(x)) throw ValueError(kOp, "expected finite coordinates, got ", x, " in box ", i);
      box[k] = int64_t(std::clamp(x, -0x1p40, 0x1p40));
    }
    const auto [x0, y0, x1, y1] = box;
    if (x1 < x0 || y1 < y0)
      throw ValueError(kOp, "expected left, top, right, bottom, got ", x0, ", ", y0, ", ", x1, ", ", y1,
                       " as box ", i);
    const auto k = int64_t(i);
    const std::array<uint8_t, 3> palette = {uint8_t(k * 33554431 % 255), uint8_t(k * 32767 % 255),
                                            uint8_t(k * 2097151 % 255)};
    const std::array<uint8_t, 3> color = o.colors.empty() ? palette : o.colors[o.colors.size() > 1 ? i : 0];
    // p = (1 - alpha / 255) p + alpha / 255 color, rounded, in columns [left, right] of rows [top, bottom].
    const auto paint = [&](int64_t left, int64_t top, int64_t right, int64_t bottom, int alpha) {
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t y = std::max(top, int64_t{0}); y <= std::min(bottom, h - 1); ++y)
          for (int64_t x = std::max(left, int64_t{0}); x <= std::min(right, w - 1); ++x) {
            uint8_t& p = pixels[(c * h + y) * w + x];
            const int sum = p * (255 - alpha) + color[size_t(c)] * alpha + 128;
            p = uint8_t(((sum >> 8) + sum) >> 8);
          }
    };
    if (o.fill) paint(x0, y0, x1, y1, 100);
    paint(x0, y0, x1, y0 + width - 1, 255);
    paint(x0, y1 - width + 1, x1, y1, 255);
    // Pillow draws a column from y0 + width to y1 - width + 1; if that is above its start, upwards, without the last
    // pixel. So columns of a box lower than two widths may leave it.
    const int64_t top = std::min(y0 + width, y1 - width + 2), bottom = std::max(y0 + width, y1 - width + 1);
    paint(x1 - width + 1, top, x1, bottom, 255);
    paint(x0, top, x0 + width - 1, bottom, 255);
  }
  return to(result, image.device());
}

}  // namespace gradus::vision
