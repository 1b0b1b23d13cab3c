// Reads the EXIF orientation tag.
#pragma once

#include <cstdint>
#include <span>

namespace gradus::data::internal {

// Returns the orientation, 1 to 8, from a TIFF structure: the content of PNG's eXIf chunk, or of JPEG's APP1
// segment after "Exif\0\0". Returns 1 if the tag is missing or the structure is malformed.
int exif_orientation(std::span<const uint8_t> tiff);

}  // namespace gradus::data::internal
