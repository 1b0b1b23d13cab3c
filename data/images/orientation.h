// Orientation: the eight ways in which a file's rows and columns can lie in the upright image.
#pragma once

#include <cstdint>

#include "gradus/data/images/image.h"

namespace gradus::data::internal {

// Pixel (x, y) of the upright image is the file's pixel (x, y), or (y, x) when axes are swapped, counted from
// the other end where flipped.
struct Orientation {
  bool swaps = false, flips_x = false, flips_y = false;

  static Orientation from_exif(int value);  // 1 to 8
  bool is_upright() const { return !swaps && !flips_x && !flips_y; }
  // Where a box of the upright image lies in the file's image of the given size.
  Box in_file(Box upright, int64_t file_height, int64_t file_width) const;
  // Turns what was decoded from the file.
  Region upright(const Region& file) const;
};

}  // namespace gradus::data::internal
