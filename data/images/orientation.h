// Orientation: the eight EXIF orientations, as transposition and mirroring. Reads the EXIF orientation tag with a
// minimal TIFF parser.
#pragma once

#include <cstdint>
#include <span>

#include "gradus/data/images/image.h"

namespace gradus::data::internal {

// Pixel (x, y) of the upright image is the file's pixel (x, y), or (y, x) if `swaps_axes`. With flips_x the file's
// columns are counted from the right, with flips_y its rows from the bottom.
struct Orientation {
  bool swaps_axes = false, flips_x = false, flips_y = false;

  static Orientation from_exif(int value);  // 1 to 8; upright for other values
  bool is_upright() const { return !swaps_axes && !flips_x && !flips_y; }
  // Converts a box of the upright image to coordinates of the file's image of this size.
  Box file_box(Box upright, int64_t file_height, int64_t file_width) const;
  // Converts a region of the file's image, or all of the image, to the upright image.
  Region upright(const Region& file) const;
  Image upright(const Image& file) const {
    return upright(Region{file, 0, 0, double(file.width()), double(file.height())}).image;
  }
};

// Returns the orientation, 1 to 8, from a TIFF structure: the content of PNG's eXIf chunk, or of JPEG's APP1
// segment after "Exif\0\0". Returns 1 if the tag is missing or the structure is malformed.
int exif_orientation(std::span<const uint8_t> tiff);

}  // namespace gradus::data::internal
