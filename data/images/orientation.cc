#include "gradus/data/images/orientation.h"

#include <cstring>
#include <utility>

namespace gradus::data::internal {

Orientation Orientation::from_exif(int value) {
  // By the EXIF value: swaps, flips_x, flips_y.
  static constexpr Orientation kOrientations[] = {
      {false, false, false}, {false, false, false}, {false, true, false},
      {false, true, true},   {false, false, true},  {true, false, false},
      {true, false, true},   {true, true, true},    {true, true, false}};
  return value >= 1 && value <= 8 ? kOrientations[value] : Orientation();
}

Box Orientation::in_file(Box box, int64_t file_height, int64_t file_width) const {
  if (swaps) box = {box.top, box.left, box.height, box.width};
  if (flips_x) box.left = file_width - box.left - box.width;
  if (flips_y) box.top = file_height - box.top - box.height;
  return box;
}

Region Orientation::upright(const Region& file) const {
  if (is_upright()) return file;
  const int64_t h = file.image.height(), w = file.image.width(), c = file.image.channels();
  Region out{Image(swaps ? w : h, swaps ? h : w, c), file.left, file.top, file.width, file.height};
  if (flips_x) out.left = double(w) - file.left - file.width;
  if (flips_y) out.top = double(h) - file.top - file.height;
  if (swaps) {
    std::swap(out.left, out.top);
    std::swap(out.width, out.height);
  }

  // Strides in the file's pixels along the upright image's x and y.
  const int64_t along_x = flips_x ? -c : c, along_y = flips_y ? -w * c : w * c;
  const int64_t step_x = swaps ? along_y : along_x, step_y = swaps ? along_x : along_y;
  const uint8_t* row = file.image.data() + (flips_x ? (w - 1) * c : 0) + (flips_y ? (h - 1) * w * c : 0);
  uint8_t* to = out.image.mutable_data();
  for (int64_t y = 0; y < out.image.height(); ++y, row += step_y) {
    const uint8_t* from = row;
    for (int64_t x = 0; x < out.image.width(); ++x, from += step_x, to += c)
      for (int64_t k = 0; k < c; ++k) to[k] = from[k];
  }
  return out;
}

}  // namespace gradus::data::internal
